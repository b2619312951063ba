"""Public reports, each put to the audit as the formula or the small function that it is about."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import mpmath
import numpy as np
import pytest
from conftest import Silent
from ml_dtypes import bfloat16
from mpmath import mp, mpf
from reports.table import KINDS, TABLE

from kl_audit.audit.request import Request, prepare
from kl_audit.report.audited import report_of

DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": bfloat16}
#: Digits for the right results: k3 near the smallest normal float32 cancels 76 of them.
DIGITS = 200


def rows_of(run):
    """Audit, and return the rows of the report by name: ``value``, ``value@jit``, ``gradient:student``."""
    job = prepare(Request(**run.request))
    report = report_of(list(job.run(Silent())), job, ["kl-audit"], False)
    rows = {}
    for row in report.results:
        name = row.output if row.output == "value" or row.with_respect_to is None else (
            f"gradient:{row.with_respect_to}")  # fmt: skip
        for key in (name, f"{name}@{row.mode}"):
            rows.setdefault(key, row)
    return rows


def codes(rows, text, level=None):
    """Return the row that ``value KLA101`` names, its code, and the codes of the row at a level."""
    name, code = text.split()
    assert name in rows, (name, list(rows))
    return name, code, {f.code for f in rows[name].findings if level in (None, f.level)}


def same(a, b, digits):
    """Whether two numbers are the same to a relative tolerance; nan is nan, and 0 only 0."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=digits)


def given(request):
    """Return the inputs of ``--at`` as stored, by name."""
    dtype = DTYPES[(request.get("dtypes") or ("fp32",))[0]]
    inputs = {}
    for item in request["at"]:
        left, _, right = item.partition("=")
        name, _, kind = left.partition(":")
        values = []
        for word in right.split(","):
            value, _, count = word.partition("*")
            values += [float(value)] * int(count or 1)
        stored = np.array(values, dtype=DTYPES.get(kind, dtype) if kind not in ("int", "bool") else float)
        inputs[name] = [mpf(float(x)) for x in stored]
    return inputs


def inputs_of(witness, request):
    """Return the inputs of a witness; of a long vector it says only how many there are."""
    if not isinstance(witness.x, dict):
        return (mpf(witness.x),), {}
    if any(isinstance(x, str) for x in witness.x.values()):
        return (), given(request)
    named = {n: [mpf(v) for v in x] if isinstance(x, list) else mpf(x) for n, x in witness.x.items()}
    return (), named


def is_asked(witness, request):
    """Whether a witness is at inputs that were asked for: a row has special values of its own."""
    if isinstance(witness.x, dict) and any(isinstance(x, str) for x in witness.x.values()):
        return True
    stored = given(request)
    if not isinstance(witness.x, dict):
        return mpf(witness.x) in next(iter(stored.values()))
    return all(mpf(x) in stored[n] for n, x in witness.x.items() if not isinstance(x, list))


def check_number(shown, rows, request):
    """Hold a number of the report against the witnesses, and their truths against mpmath."""
    row = rows[shown.row]
    listed = [f.witness for f in row.findings] + [row.worst, *row.top]
    seen = [w for w in listed if w is not None and same(w.got, shown.got, shown.digits)]
    seen = [w for w in seen if is_asked(w, request)]
    assert seen, f"{shown.row}: no witness with {shown.got}, but {[w.got for w in listed if w]}"
    wanted = False
    with mp.workdps(DIGITS):
        for witness in seen:
            assert witness.truth is not None
            truth = mpf(witness.truth)
            positional, named = inputs_of(witness, request)
            right = shown.right(*positional, **named)
            assert abs(truth - right) <= max(abs(right) * mpf(10) ** -25, mpf(10) ** -80), (truth, right)
            wanted = wanted or same(float(truth), shown.want, shown.digits)
    assert wanted, f"{shown.row}: right is {shown.want} in the report, here {[w.truth for w in seen]}"


def check_run(run):
    """Audit, and hold the report against what the table says."""
    rows = rows_of(run)
    for text in run.errors:
        name, code, have = codes(rows, text, "error")
        assert code in have, (name, code, have)
        assert rows[name].verdict == "fail"
    for text in run.notes:
        name, code, have = codes(rows, text, "note")
        assert code in have, (name, code, have)
    for text in run.absent:
        name, code, have = codes(rows, text)
        assert code not in have, (name, code)
    for name in run.passes:
        assert rows[name].verdict == "pass", (name, rows[name].verdict, rows[name].reason)
    for shown in run.shows:
        check_number(shown, rows, run.request)
    assert not {f.code for row in rows.values() for f in row.findings} & {"KLA901", "KLA902", "KLA200"}


@pytest.mark.filterwarnings("ignore")  # NumPy warns of the overflows that the reports are about
@pytest.mark.parametrize("report", [r for r in TABLE if r.runs], ids=lambda r: r.id)
def test_a_report_is_found(report):
    """The audit shows the fault of a public report, its wrong number, and the right one."""
    for run in report.runs:
        check_run(run)


def test_how_many_are_found():
    """Of 61 reports 54 are found, one is explained as no rounding, and each other one has a reason."""
    outcomes = {r.id: r.outcome for r in TABLE}
    counts = {o: list(outcomes.values()).count(o) for o in set(outcomes.values())}
    assert len(outcomes) == len(TABLE) == 61
    assert counts == {"found": 54, "explained": 1, "fixed": 1, "elsewhere": 5}
    for r in TABLE:
        assert (r.reason is None) == (r.outcome == "found"), r.id
        errors = any(run.errors for run in r.runs)
        assert errors or r.outcome != "found", r.id
        assert r.statement.endswith("."), r.id
        assert r.url.startswith("https://github.com/"), r.id


def test_right_results_are_those_of_mpmath():
    """The functions that say what is right agree with closed forms."""
    from reports.exact import entropy, jsd, k3, kl, log_softmax

    with mp.workdps(50):
        assert mpmath.almosteq(k3(mpf(1)), mp.e - 2)
        assert mpmath.almosteq(entropy([mpf(0), mpf(0), mpf("-inf")]), mp.log(2))
        assert mpmath.almosteq(jsd([mpf(0), mpf(-1000)], [mpf(-1000), mpf(0)]), mp.log(2))
        assert mpmath.almosteq(kl([mpf(0), mpf(0)], [mpf(0), mp.log(3)]), mp.log(2) - mp.log(3) / 2)
        assert mpmath.almosteq(log_softmax([mpf(0)] * 4)[0], -mp.log(4))


def test_the_table_is_complete():
    """Every report of the collection that is of one of these kinds is in the table, with its address."""
    path = os.environ.get("KL_AUDIT_REPORTS")
    if not path:
        pytest.skip("KL_AUDIT_REPORTS does not name the collection of reports")
    listed = json.loads(Path(path).read_text(encoding="utf-8"))["reports"]
    wanted = {r["id"]: (r["kind"], r["url"]) for r in listed if r["kind"] in KINDS}
    assert {r.id: (r.kind, r.url) for r in TABLE} == wanted
