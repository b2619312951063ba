"""Every public report of the kinds that concern a formula, and what an audit makes of it."""

from __future__ import annotations

from reports.cancellation import CANCELLATION
from reports.compilers import COMPILERS
from reports.entropies import ENTROPIES
from reports.log_probabilities import LOG_PROBABILITIES
from reports.overflow import OVERFLOW
from reports.record import Report
from reports.sums import PREFERENCE_LOSSES, SUMS
from reports.tail_mass import TAIL_MASS

#: The reports, in the order of their kinds.
TABLE: tuple[Report, ...] = (
    *CANCELLATION,
    *OVERFLOW,
    *LOG_PROBABILITIES,
    *TAIL_MASS,
    *SUMS,
    *ENTROPIES,
    *COMPILERS,
    *PREFERENCE_LOSSES,
)

#: The kinds of report that the table covers.
KINDS = frozenset(r.kind for r in TABLE)
