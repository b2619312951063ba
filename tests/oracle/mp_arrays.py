"""The vocabulary once more, on NumPy arrays of mpmath numbers: slow, plain, and without a tape.

Derivatives are mpmath's finite differences at 80 digits, so nothing is shared with what is tested.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np

DIGITS = 80


def objects(values):
    """Return an object array; NumPy gives bare scalars for shape ()."""
    if isinstance(values, np.ndarray):
        return values
    out = np.empty((), dtype=object)
    out[()] = values
    return out


def elementwise(fn):
    return lambda *args: objects(np.frompyfunc(fn, len(args), 1)(*args))


def softplus(x):
    return mpmath.log(1 + mpmath.exp(x))


class MpOps:
    """What ArrayOps offers, in mpmath numbers."""

    exp, log, sqrt = (elementwise(f) for f in (mpmath.exp, mpmath.log, mpmath.sqrt))
    expm1 = elementwise(lambda x: mpmath.exp(x) - 1)
    log1p = elementwise(lambda x: mpmath.log(1 + x))
    abs = elementwise(abs)
    sigmoid = elementwise(lambda x: 1 / (1 + mpmath.exp(-x)))
    softplus = elementwise(softplus)
    log_sigmoid = elementwise(lambda x: -softplus(-x))
    minimum, maximum = elementwise(min), elementwise(max)
    logaddexp = elementwise(lambda a, b: mpmath.log(mpmath.exp(a) + mpmath.exp(b)))
    xlogy = elementwise(lambda a, b: a * mpmath.log(b) if a else mpmath.mpf(0))

    @staticmethod
    def where(condition, a, b):
        return np.where(condition, a, b)

    @staticmethod
    def clip(x, low, high):
        def fn(v):
            v = v if low is None else max(v, low)
            return v if high is None else min(v, high)

        return elementwise(fn)(x)

    @staticmethod
    def sum(x, axis=None):
        return objects(np.sum(x, axis=axis))

    @staticmethod
    def mean(x, axis=None):
        return objects(np.sum(x, axis=axis) / (x.size if axis is None else x.shape[axis]))

    @staticmethod
    def max(x, axis=None):
        return objects(np.max(x, axis=axis))

    @staticmethod
    def min(x, axis=None):
        return objects(np.min(x, axis=axis))

    @staticmethod
    def cumsum(x, axis=-1):
        return np.cumsum(x, axis=axis)

    @staticmethod
    def take(x, index, axis=-1):
        return objects(np.take(x, index, axis=axis))

    @classmethod
    def logsumexp(cls, x, axis=-1):
        return cls.log(np.sum(cls.exp(x), axis=axis))

    @classmethod
    def softmax(cls, x, axis=-1):
        e = cls.exp(x)
        return e / np.sum(e, axis=axis, keepdims=True)

    @classmethod
    def log_softmax(cls, x, axis=-1):
        return x - cls.log(objects(np.sum(cls.exp(x), axis=axis, keepdims=True)))

    @staticmethod
    def reshape(x, shape):
        return np.reshape(x, shape)

    @staticmethod
    def concat(arrays):
        return np.concatenate(arrays, axis=-1)

    @staticmethod
    def stack(arrays):
        return np.stack(arrays)

    @staticmethod
    def full(shape, value, ref):
        return np.full(shape, mpmath.mpf(value), dtype=object)

    @staticmethod
    def constant(value, ref):
        return mpmath.mpf(value)

    @staticmethod
    def cast(x, name):
        return x

    @staticmethod
    def like(x, ref):
        return x


to_mp = np.frompyfunc(lambda x: mpmath.mpf(float(x)), 1, 1)


def value(fn, inputs, constants=None):
    """Return the array fn(ops, **inputs), at 80 digits."""
    with mpmath.workdps(DIGITS):
        return objects(fn(MpOps, **{k: objects(to_mp(x)) for k, x in inputs.items()}, **(constants or {})))


def derivative(fn, inputs, name, index, constants=None):
    """Return the derivative of the sum of fn with respect to one (flat) entry of one input."""

    def along(t):
        columns = {k: objects(to_mp(x)).copy() for k, x in inputs.items()}
        columns[name][np.unravel_index(index, columns[name].shape)] = t
        return mpmath.fsum(np.ravel(fn(MpOps, **columns, **(constants or {}))))

    with mpmath.workdps(DIGITS):
        return mpmath.diff(along, mpmath.mpf(float(np.ravel(inputs[name])[index])))


def to_fraction(x):
    """Return an mpf as the Fraction that it is."""
    x = x[()] if isinstance(x, np.ndarray) else x
    # mpf(x) would round to the working precision
    sign, man, exp, _ = x._mpf_ if hasattr(x, "_mpf_") else mpmath.mpf(x)._mpf_
    out = Fraction(int(man)) * Fraction(2) ** int(exp)
    return -out if sign else out


def ends(x):
    """Return both ends of a ball or an mpmath interval as Fractions."""
    if hasattr(x, "_mpi_"):
        return tuple(to_fraction(mpmath.mp.make_mpf(end)) for end in x._mpi_)
    return tuple(
        Fraction(int(m)) * Fraction(2) ** int(e) for m, e in (x.lower().man_exp(), x.upper().man_exp())
    )


def is_within(want, x, slack=0):
    """Tell whether an enclosure holds an mpmath number, known to the given relative slack."""
    low, high = ends(x)
    truth = to_fraction(want)
    room = Fraction(slack) * (1 + abs(truth))
    return low - room <= truth <= high + room
