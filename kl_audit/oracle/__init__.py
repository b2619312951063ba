"""The truth: exact (mpmath intervals, certified) and bulk (balls, or float64 with a proven bound).

A *reference* is a function ``reference(ops, *inputs)`` that states a quantity once, with the
operations of whatever arithmetic it is given: mpmath intervals in ``exact``, Arb balls in
``balls``.  Every printed figure is recomputed through ``exact``.
"""
