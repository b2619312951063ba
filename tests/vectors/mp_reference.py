"""The quantities of vectors and their gradients once more, in mpmath, from probabilities.

Nothing is shared with the references under test: those work on log-probabilities and differentiate by
tape, these form probabilities and use gradients worked out by hand.  -inf logits are probability 0.
"""

from __future__ import annotations

import numpy as np
from mpmath import exp, inf, isfinite, log, mp, mpf

DIGITS = 80


def numbers(values):
    """Return exact mpmath numbers."""
    return [mpf(float(v)) for v in values]


def softmax(logits):
    weights = [exp(z) if isfinite(z) else mpf(0) for z in numbers(logits)]
    return [w / sum(weights) for w in weights]


def kl_of(p, q):
    if any(a > 0 and b == 0 for a, b in zip(p, q, strict=True)):
        return inf
    return sum((a * log(a / b) for a, b in zip(p, q, strict=True) if a > 0), mpf(0))


def logsumexp(logits):
    total = sum(exp(z) for z in numbers(logits) if isfinite(z))
    return (log(total) if total else -inf), (softmax(logits) if total else None)


def selected_log_prob(logits, index):
    p = softmax(logits)
    if p[index] == 0:
        return -inf, None
    return log(p[index]), [(k == index) - x for k, x in enumerate(p)]


def entropy(logits):
    p = softmax(logits)
    h = -sum(x * log(x) for x in p if x > 0)
    return h, [-x * (log(x) + h) if x > 0 else mpf(0) for x in p]


def kl_forward(student, teacher):
    s, t = softmax(student), softmax(teacher)
    return kl_of(t, s), [a - b for a, b in zip(s, t, strict=True)]


def kl_reverse(student, teacher):
    s, t = softmax(student), softmax(teacher)
    value = kl_of(s, t)
    if value == inf:
        return value, None
    return value, [a * (log(a / b) - value) if a > 0 else mpf(0) for a, b in zip(s, t, strict=True)]


def jsd(student, teacher):
    s, t = softmax(student), softmax(teacher)
    m = [(a + b) / 2 for a, b in zip(s, t, strict=True)]
    first = kl_of(s, m)
    slope = [a * (log(a / c) - first) / 2 if a > 0 else mpf(0) for a, c in zip(s, m, strict=True)]
    return (first + kl_of(t, m)) / 2, slope


def kl_topk_tail(student, teacher_probs, ids, floor=1e-6):
    s, t, ids = softmax(student), numbers(teacher_probs), [int(i) for i in ids]
    tail = 1 - sum(t)
    mass = sum((x for k, x in enumerate(s) if k not in ids), mpf(0))
    value = sum((a * log(a / s[i]) for a, i in zip(t, ids, strict=True) if a), mpf(0))
    if tail:
        value += tail * log(tail / max(mass, mpf(floor)))
    pull = dict(zip(ids, t, strict=True))
    free = mass > floor and tail > 0
    slope = [
        x * (1 if free else sum(t)) - (pull.get(k, tail * x / mass if free else 0)) for k, x in enumerate(s)
    ]
    return value, slope


def masked_sum(values, mask):
    kept = [mpf(float(v)) for v, m in zip(values, mask, strict=True) if m]
    return sum(kept, mpf(0)), [mpf(int(m)) for m in mask]


def masked_mean(values, mask):
    total, slope = masked_sum(values, mask)
    count = max(1, int(np.sum(mask)))
    return total / count, [m / count for m in slope]


def sequence_sum(values):
    return sum(numbers(values)), [mpf(1)] * len(values)


def sequence_ratio(policy, old):
    value = mpf(1)
    for a, b in zip(numbers(policy), numbers(old), strict=True):
        value *= exp(a) / exp(b)
    return value, [value] * len(policy)


def kl_log_probs_forward(student, teacher):
    pairs = list(zip(numbers(student), numbers(teacher), strict=True))
    if any(isfinite(t) and not isfinite(s) for s, t in pairs):
        return inf, None
    value = sum((exp(t) * t - exp(t) * s for s, t in pairs if isfinite(t)), mpf(0))
    return value, [-exp(t) if isfinite(t) else mpf(0) for s, t in pairs]


def kl_log_probs_reverse(student, teacher):
    value = kl_log_probs_forward(teacher, student)[0]
    if value == inf:
        return value, None
    pairs = list(zip(numbers(student), numbers(teacher), strict=True))
    return value, [exp(s) * (s - t + 1) if isfinite(s) else mpf(0) for s, t in pairs]


def reference(name, inputs):
    """Return (value, gradient by the first input) in DIGITS digits; no gradient of what is infinite."""
    with mp.workdps(DIGITS):
        value, slope = globals()[name.replace("-", "_")](**inputs)
        return value, None if value in (inf, -inf) else slope
