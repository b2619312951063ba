"""Kahan's compensated expm1 in place of the library's: (y - 1) d / log(y) - d with y = exp(d).

The error of y is the same in y - 1 and in log(y), and their quotient hardly varies near y = 1, so
(y - 1)/log(y) is good although y - 1 alone is not.  No expm1 is called: it survives a compiler that
turns expm1 into exp - 1.  y - 1 is exact near 0; log, the division and the product err by u each (with
a log of one ulp, 2 u): expm1 errs by at most 4 u, and the law is that of the expm1 form with twice the
constant: 8 u/|d|.  Where exp(d) rounds to 1, expm1(d) is taken as d and k3 as 0: relative error 1,
below |d| = u.
"""

from typing import Any

from kl_audit.formulations.base import Formulation
from kl_audit.formulations.laws import COMPENSATED_LAW


def compensated(xp: Any, d: Any) -> Any:
    """Evaluate (y - 1) d / log(y) - d with y = exp(d), and exp(d) - 1 - d where |d| > 1."""
    near = xp.clip(d, -2.0, 2.0)
    y = xp.exp(near)
    flat, one = y == 1, 0 * near + 1
    slope = xp.where(flat, one, (y - 1) / xp.where(flat, one, xp.log(y)))
    return xp.where(xp.abs(d) <= 1, slope * near - near, (xp.exp(d) - 1) - d)


FORMULATION = Formulation(
    name="compensated",
    quantity="k3",
    fn=compensated,
    formula="(y - 1) d / log(y) - d, y = exp(d)",
    source="W. Kahan's expm1 (Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1)",
    law=COMPENSATED_LAW,
)
