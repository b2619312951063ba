"""Functions as a user of NumPy may have them."""

import numpy as np


def k3(x):
    return np.expm1(x) - x


def mean_k3(x):
    return np.mean(np.expm1(x) - x)


def in_place(x):
    np.subtract(np.expm1(x), x, out=x)
    return x


def wide(x):
    return x.astype(np.complex64)
