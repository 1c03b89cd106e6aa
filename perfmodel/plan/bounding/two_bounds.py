"""Two lower bounds of one search: over the plans of the listed schemes, and over every plan of a plan file.

The search chooses from listed schemes (``options_of``). The bound over those guides it, and says how much
better it could have been. The bound over every plan, of any row parts, column parts and hot rows, lies below
it: what no list could beat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.bounding.at_once import at_once, at_prices
from perfmodel.plan.bounding.bound import Bounding
from perfmodel.plan.bounding.cover import Cover
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.problem import Problem, Relaxation, Subspace
from perfmodel.plan.bounding.tier_parts import prefetched_s
from perfmodel.plan.choices.options import Options
from perfmodel.plan.pricing.cost import Evaluator

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

LISTED = "plans of the listed schemes"
"""What the first bound is over, in words."""

LISTED_SCHEMES = (
    "row parts in powers of two, whole NVLink domains or all GPUs; column parts of 4 columns or more, equal "
    "ones or a power of two of them; hot rows that get 50, 75, 90 or 97 % of the look-ups, where they save "
    "time; each part on a GPU of its own"
)
"""Which schemes are listed (``options_of``), in words."""

OF_TORCHREC = "plans of TorchRec's shardings"
TORCHREC_SCHEMES = (
    "whole tables, equal column parts of a multiple of 4 columns, row parts over one NVLink domain or all "
    "GPUs, both over whole domains, and copies; each part on a GPU of its own"
)
"""The same of a search for TorchRec (``torchrec.runnable``)."""

_COVER_S = 2e-3
"""What the boxes of one kind of table take, about [s]."""

ALL_PLANS = "every plan that a plan file can describe"
"""What the second bound is over, in words: any row parts, column parts and hot rows."""


class TwoBounds:
    """The bounds of one search; each may be raised when there is time.

    listed   over the plans of ``options``
    every    over every plan; None: not begun, or not wanted
    allowed  whether any scheme of boxes may be (``Cover``);  wanted  whether a bound over every plan is
    """

    def __init__(
        self,
        evaluator: Evaluator,
        options: Options,
        limit_bytes: float,
        best_s: float,
        found: Callable[[Subspace, Relaxation], float],
        tolerance: float,
        kinds: Sequence[int] = (),
        *,
        allowed: Callable[[Ints], Mask] | None = None,
        wanted: bool = True,
    ) -> None:
        self.evaluator, self.limit_bytes, self.allowed = evaluator, limit_bytes, allowed
        self.tolerance, self.kinds, self.wanted = tolerance, kinds, wanted
        self.curves = StepCurves.of(evaluator)
        listed = Problem(options, self.curves, limit_bytes, best_s, prefetched_s(options, evaluator))
        self.listed = Bounding(listed, found, tolerance, kinds)
        self.every: Bounding | None = None
        self.told_s = self.told_every_s = 0.0  # what others found (``heard``)

    @property
    def best_s(self) -> float:
        """Time of the best plan that is known [s]."""
        return self.listed.best_s

    @property
    def bound_s(self) -> float:
        """No plan of the listed schemes takes less [s]: such plans are among all plans."""
        return max(self.listed.bound_s, min(self.told_s, self.best_s), self.all_plans_s or 0.0)

    @property
    def all_plans_s(self) -> float | None:
        """No plan at all takes less [s]; 0 where that is not known yet, None where nobody asked."""
        if not self.wanted:
            return None
        own_s = 0.0 if self.every is None else self.every.bound_s
        return min(max(own_s, self.told_every_s), self.best_s)

    def begin(self, loads: Array, left_s: float) -> None:
        """Both bounds at once, before they are raised; that over every plan if there is time for it.

        loads  [K] of the busiest rank of the best plan that is known [bytes];  left_s  of the search
        """
        first = at_once(self.listed.problem, self.curves.units(loads))
        self.listed.begin(first)
        if self.wanted and left_s > _COVER_S * self.listed.problem.count.size:
            self.every = self._begun()
            self.every.begin(at_prices(self.every.problem, first, self.best_s))

    def found(self, time_s: float) -> None:
        """A plan of this time is known."""
        self.listed.best_s = min(self.listed.best_s, time_s)
        if self.every is not None:
            self.every.best_s = min(self.every.best_s, time_s)

    def heard(self, bound_s: float, all_plans_s: float) -> None:
        """Bounds that another process found, over the plans of ``options`` and over every plan."""
        self.told_s = max(self.told_s, bound_s)
        self.told_every_s = max(self.told_every_s, all_plans_s)

    @property
    def closed(self) -> bool:
        """Whether no plan at all can be better by more than the tolerance, as far as is wanted."""
        return not self.wanted or (self.all_plans_s or 0.0) >= self.best_s * (1 - self.tolerance)

    def widen(
        self, until: Callable[[], bool], half: Callable[[], bool] | None = None, left_s: float = 0.0
    ) -> None:
        """Raise the bound over every plan: by parts, then with whole tables, then by parts that are near.

        half  whether it is time for whole tables;  left_s  what is left from then on [s]
        """
        if not self.wanted or until():
            return
        if self.every is None:
            self.every = self._begun()
        self.every.run(half or until)
        if not self.closed and self.every.takes_whole_tables(left_s):
            self.every.with_whole_tables(until, lambda options: None)
            self.every.run(until)

    def _begun(self) -> Bounding:
        cover = Cover(self.evaluator, self.limit_bytes, self.allowed)
        problem = Problem(cover, self.curves, self.limit_bytes, self.best_s)
        return Bounding(problem, lambda part, relaxed: self.best_s, self.tolerance, self.kinds)
