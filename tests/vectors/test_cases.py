"""The generated cases: values of the format, tags that mean what they say, sizes on request."""

from __future__ import annotations

import numpy as np
import pytest
from vectors.mp_reference import kl_topk_tail

from kl_audit.errors import UsageError
from kl_audit.formats import BF16, FP16, FP32
from kl_audit.quantities.generators import SHIFT, pairs, rows, tokens
from kl_audit.quantities.vector_base import rounded
from kl_audit.quantities.vectors import VECTORS, find_vector

FORMATS = pytest.mark.parametrize("fmt", [FP32, BF16, FP16], ids=lambda f: f.short)


@FORMATS
@pytest.mark.parametrize("name", VECTORS)
def test_real_inputs_are_values_of_the_format(name, fmt):
    """What a case holds is exactly what the candidate is given, whatever the seed."""
    q = VECTORS[name]
    for seed in range(3):
        for size in q.sizes:
            for case in q.cases(fmt, np.random.default_rng(seed), size):
                for i in q.inputs:
                    if i.kind == "real":
                        x = case.inputs[i.name]
                        assert np.array_equal(rounded(fmt, x), x, equal_nan=True), (case.name, i.name)


@FORMATS
def test_shifted_rows_are_the_row_before_plus_a_constant(fmt):
    """A shifted case differs from the one before the shift by exactly SHIFT everywhere."""
    found = list(rows(fmt, np.random.default_rng(1), 64))
    base = next(r for r in found if r.name == "before the shift")
    shifted = [r for r in found if r.tag == "shifted"]
    assert len(shifted) == 2
    for row in shifted:
        assert set(np.abs(row.logits - base.logits)) == {SHIFT}


@FORMATS
def test_pairs_are_identical_only_where_they_are_tagged(fmt):
    """The tag 'identical' holds for equal rows, and no other pair is equal."""
    found = list(pairs(fmt, np.random.default_rng(2), 64))
    equal = {p.name for p in found if np.array_equal(p.student, p.teacher)}
    assert equal == {p.name for p in found if p.tag == "identical"}
    assert len(equal) >= 4


@FORMATS
def test_masked_slots_hold_what_must_not_be_looked_at(fmt):
    """Cases tagged 'masked' hold NaN or a huge value where the mask is off, and never where it is on."""
    held = []
    for case in tokens(fmt, np.random.default_rng(3), 8):
        values, mask = case.inputs["values"], case.inputs["mask"]
        assert np.isfinite(values[mask]).all()
        if case.tag == "masked":
            held.append(values[~mask][0])
        assert (case.tag == "all-masked") == (not mask.any())
    assert np.isnan(held[0])
    assert held[1:3] == [np.inf, -np.inf]
    assert held[3] <= -65504


@FORMATS
def test_topk_cases_cover_the_tail_and_stay_off_its_kink(fmt):
    """There are at least 20 cases with tails on both sides of the floor, none within 10 % of it."""
    q = find_vector("kl-topk-tail")
    masses, tails, empty = [], [], 0
    found = [c for size in (2, 4, 64) for c in q.cases(fmt, np.random.default_rng(0), size)]
    for case in found:
        z, ids = case.inputs["student"], case.inputs["ids"]
        p = np.exp(z - z.max())
        masses.append(np.delete(p, ids).sum() / p.sum())
        tails.append(1 - case.inputs["teacher_probs"].sum())
        empty += len(ids) == 0
    assert len(found) >= 20
    assert empty >= 1
    assert min(tails) == 0
    near = [m for m in masses if 0.9e-6 < m < 1.1e-6]
    assert not near
    assert sum(0 < m < 1e-6 for m in masses) >= 3
    assert sum(1e-6 < m < 1e-5 for m in masses) >= 3


def test_a_vocabulary_of_150000_can_be_had():
    """Sizes beyond the defaults are made on request."""
    pair = next(pairs(BF16, np.random.default_rng(0), 150_000))
    assert pair.student.shape == (150_000,)
    case = next(find_vector("kl-topk-tail").cases(BF16, np.random.default_rng(0), 150_000))
    assert case.size == 150_000
    assert len(case.inputs["ids"]) == 32


def test_flat_cases_have_a_known_value():
    """n equal logits have entropy log n, and n ones sum to n."""
    for name in ("logsumexp", "entropy"):
        assert not VECTORS[name].flat(BF16, 512).inputs["logits"].any()
    assert VECTORS["sequence-sum"].flat(BF16, 512).inputs["values"].sum() == 512
    assert VECTORS["masked-mean"].flat(BF16, 512).inputs["mask"].all()
    inputs = VECTORS["kl-topk-tail"].flat(FP32, 8).inputs
    value, _ = kl_topk_tail(**inputs)
    assert float(value) == pytest.approx(0.5 * np.log(4) + 0.5 * np.log(4 / 7))


def test_an_unknown_quantity_is_refused_with_the_known_names():
    """find_vector says what there is."""
    with pytest.raises(UsageError, match=r"unknown vector quantity 'klx'.*kl-topk-tail"):
        find_vector("klx")
