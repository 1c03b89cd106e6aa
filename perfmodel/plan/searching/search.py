"""The search for a plan: strong constructions first, then moves, until bound, time or nothing better."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model.exchanges import Exchange
from perfmodel.plan.bounding.problem import Relaxation, Subspace
from perfmodel.plan.bounding.rooms import NearRooms
from perfmodel.plan.bounding.two_bounds import TwoBounds
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.pricing.cost import Evaluator
from perfmodel.plan.pricing.placement import Plan
from perfmodel.plan.searching import time_shares as shares
from perfmodel.plan.searching.by_patterns import by_patterns
from perfmodel.plan.searching.carried import repaired
from perfmodel.plan.searching.changing import Changing
from perfmodel.plan.searching.evening import Evening
from perfmodel.plan.searching.found import Found
from perfmodel.plan.searching.improve import improve
from perfmodel.plan.searching.packing import Packing, pack
from perfmodel.plan.searching.rounding import leanest, roundings
from perfmodel.plan.searching.schemes import Descent
from perfmodel.plan.searching.starts import Starts

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_TOLERANCE = 0.01
_SMALL = 30_000  # tables times GPUs: up to here every plan near the best is improved, above the best one
_FEW = 4_000  # and up to here schemes are improved one by one before they are chosen at prices
_DIFFERENT = 60  # different tables, up to which a plan to show is built with more than quick ones
_WORTH_A_FAMILY = 1.3  # of the best plan's time: a kind of exchange alone that is slower is not tried further
_VALLEYS = 4  # of such plans are changed at random beside the best one
_WORTH_A_TRY = 1.02  # of the best plan's time: what is slower is not improved
_ROOMS = (1.0, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)
"""Shares of the memory that schemes are chosen for, when shards of uneven size do not fill all of it."""

Watch = Callable[[float, float], None]
Restriction = Callable[[Options, Evaluator], Mask]
"""Which options [O] a plan may use; every table must keep one."""


class Search:
    """One search; ``run`` gives the answer, and what was best when it is interrupted.

    options  that plans may use, with their loads and memory, or what lists them in the time that there is:
             ``options_of`` all that fit, unless given
    allowed  whether any scheme of boxes may be, of the bound over all plans (``Cover``); None: all may
    listed   whether there is no bound over all plans: where options are given or restricted
    Source: of ``evaluator`` the search asks ``step_times``, ``tables`` and, of ``times``, the exchanges that
            need buffers; the bound ``parts`` and ``steps``; the answer ``loads``, ``step`` and ``memory``
    """

    def __init__(
        self,
        evaluator: Evaluator,
        limit_bytes: float,
        *,
        time_limit_s: float = 10.0,
        seed: int = 0,
        restrict: Restriction | None = None,
        options: Options | Callable[[], Options] | None = None,
        listed: bool | None = None,
        allowed: Callable[[Ints], Mask] | None = None,
        watch: Watch = lambda best_s, bound_s: None,
    ) -> None:
        self.evaluator, self.limit_bytes, self.watch = evaluator, limit_bytes, watch
        self.clock = time.monotonic
        self.began = self.clock()
        self.deadline = self.began + time_limit_s
        self.random = np.random.default_rng(seed)
        self.best: Packing | None = None
        self.best_s = np.inf
        self.bounds: TwoBounds | None = None
        self.kinds: list[int] = []
        self.families: list[Packing] = []
        self.better: dict[tuple[float, bytes, bytes], Ints] = {}  # where schemes lead, by room and mask
        self.first: Ints | None = None  # schemes [T] that are tried besides
        self.bounds_began = self.began
        self.tried, self.near_s = 0, 0.0  # plans that were packed; seconds for those near optima of bounds
        self.packed: dict[bytes, bool] = {}  # whether schemes could be packed
        self.allowed = allowed
        self.listed = options is not None or restrict is not None if listed is None else listed
        self.options = options() if callable(options) else options or options_of(evaluator, limit_bytes)
        self.restricted = restrict is not None
        if restrict is not None:
            self.options = self.options.kept(restrict(self.options, evaluator))
        self.ends = self.deadline
        listing_s = self.clock() - self.began  # the answer takes about as long again
        reasons_s = min(shares.REASON_S * self.options.count.size, time_limit_s * shares.REASONS)
        self.deadline -= min(listing_s, time_limit_s * shares.ANSWERING) + reasons_s
        self.changed_enough: Callable[[], bool] = self.late
        self.bounded_enough: Callable[[], bool] = self.late
        size = self.options.kind_of.size * self.options.gpus
        self.few, self.small = size <= _FEW, size <= _SMALL
        self.starts = Starts(evaluator, self.options, limit_bytes, self._keep, self.late)

    def late(self) -> bool:
        """Whether the time is up."""
        return self.clock() >= self.deadline

    def over(self) -> bool:
        """Whether the time is up for what is said of the plan, too."""
        return self.clock() >= self.ends

    def _after(self, share: float) -> Callable[[], bool]:
        """Whether that share of the time is over."""
        until = self.began + (self.deadline - self.began) * share
        return lambda: self.clock() >= until

    def _soon(self, share: float, least: float) -> Callable[[], bool]:
        """Whether that share of the time is over, and as much as ``least`` of it from now on."""
        now, whole = self.clock(), self.deadline - self.began
        until = min(max(self.began + whole * share, now + whole * least), self.deadline)
        return lambda: self.clock() >= until

    def _share_over(self) -> float:
        """What share of the time is over."""
        return (self.clock() - self.began) / max(self.deadline - self.began, 1e-9)

    def _bound(self, share: float, least: float) -> None:
        """Raise the bound of the listed schemes, with ``_soon``, while it rises: by parts, with whole tables
        where they are few, last by rooms."""
        rooms = self._takes_rooms()
        first = (shares.PARTS_FIRST, shares.PARTS_LEAST) if rooms else (share, least)
        self._by_parts(self._soon(*first))
        if rooms and self._open():
            enough = self._soon(share, least)
            left_s = (self.deadline - self.clock()) * shares.WHOLE
            self._with_whole_tables(left_s, self._soon((share + self._share_over()) / 2, least))
            self._by_rooms(enough)

    def _takes_rooms(self) -> bool:
        assert self.bounds is not None
        return self.bounds.listed.takes_rooms(self.deadline - self.clock())

    def _by_parts(self, until: Callable[[], bool]) -> None:
        """Raise the bound of the listed schemes by parts while it rises, before it is raised by rooms."""
        assert self.bounds is not None
        listed, long_s = self.bounds.listed, shares.STALLED * (self.deadline - self.began)
        mark_s, since = listed.bound_s, self.clock()

        def over() -> bool:
            nonlocal mark_s, since
            if listed.bound_s > mark_s * (1 + shares.RISE):
                mark_s, since = listed.bound_s, self.clock()
            return until() or (listed.solved >= shares.PARTS and self.clock() > since + long_s)

        self.bounded_enough = until
        if listed.rooms is None:
            listed.run(over)

    def _with_whole_tables(self, left_s: float, until: Callable[[], bool]) -> None:
        """Raise it with whole tables, if that may be of use in ``left_s``."""
        assert self.bounds is not None
        if self.bounds.listed.takes_whole_tables(left_s):
            self.bounded_enough = until
            self.bounds.listed.with_whole_tables(until, self._whole)

    def _by_rooms(self, until: Callable[[], bool]) -> None:
        """Raise it by the rooms of ranks."""
        assert self.bounds is not None
        self.bounded_enough = until
        self.bounds.listed.with_rooms(until, self._in_rooms)

    def run(self) -> Found:
        """The best plan.

        Limits: no plan fits in memory -> BadInputError;  Ctrl-C -> the best so far, KeyboardInterrupt
                before there is one
        """
        stopped = "no improvement"
        try:
            self._begin()
            self.bounds, self.bounds_began = self._bounds(), self.clock()
            if self.best is not None:
                loads = self.evaluator.loads(self.best.plan()).most
                if not self.small:  # the answer has a plan to make and others to compare it with
                    self.deadline -= shares.PLANS * (self.clock() - self.bounds_began)
                self.bounds.begin(loads, self.deadline - self.clock())
            if self.few:
                self.bounds.listed.run(self._after(shares.GLANCE))
                if self._open():
                    self._start(shares.STARTING)
            self._rest()
            if not self._open():
                stopped = "bound"
        except KeyboardInterrupt:
            if self.best is None:
                raise
            stopped, self.ends = "interrupt", self.began  # an answer at once: no time for more
        return self._answer("time" if stopped == "no improvement" and self.late() else stopped)

    def _rest(self) -> None:
        """Raise the bounds and change plans in turn, until the gap is closed or the time is up."""
        if not self.small:  # the bound of many tables takes long, and finds few plans
            self.changed_enough = self._soon(shares.EARLY, shares.EARLY_LEAST)
            self._anneal()
        self._bound(shares.BOUNDING, shares.BOUNDING_LEAST)
        if not self._open():
            return self._widen(self._share_over())
        self.changed_enough = self._soon(shares.CHANGING, shares.CHANGING_LEAST)
        self._anneal()
        unsettled = self.changed_enough()
        self._bound(shares.LISTED, shares.LISTED_LEAST)
        self._widen(1.0)
        if unsettled and self._open():  # no bound can rise any further: the rest is for plans
            self.changed_enough = self.late
            self._anneal()

    def _open(self) -> bool:
        """Whether a plan may be better than the best by more than the tolerance."""
        return self.bounds is None or self.bounds.bound_s < self.best_s * (1 - _TOLERANCE)

    def _bounds(self, listed: Options | None = None) -> TwoBounds:
        """Of the plans that there are, not begun. listed  what stands for the options there, if not they"""
        plans = self.evaluator, listed or self.options, self.limit_bytes, self.best_s, self._near
        wanted = not self.listed
        return TwoBounds(*plans, _TOLERANCE, self.kinds, allowed=self.allowed, wanted=wanted)

    def constructed(self) -> Plan:
        """The best of the plans that a search begins with: nothing is drawn, so it is the same every time.

        Limits: as ``run``; many tables -> the quick ones;  a time limit that is reached -> the best so far
        """
        if self.few and self.options.count.size <= _DIFFERENT:
            self._begin()
        else:
            self.starts.quick()
        return self._answer("given").plan

    def _answer(self, stopped: str) -> Found:
        if self.best is None:
            raise BadInputError(
                f"no plan was found that fits the memory of {self.options.gpus} GPUs.",
                "use more GPUs (--gpus), more memory (--max-hbm, --reserve) or more time (--time-limit).",
            )
        plan = self.best.plan()
        loads = self.evaluator.loads(plan)
        cost = self.evaluator.step(loads)
        bound_s = min(self.bounds.bound_s if self.bounds else 0.0, cost.time_s)
        all_plans_s = None if self.listed else self.bounds.all_plans_s or 0.0 if self.bounds else 0.0
        seconds = self.clock() - self.began
        memory = self.evaluator.memory(plan, loads)
        tried = self.tried + self.starts.tried
        return Found(
            *(plan, cost, memory, self.limit_bytes, bound_s, stopped, seconds, tried),
            restricted=self.restricted,
            all_plans_s=all_plans_s,
        )

    def _begin(self) -> None:
        """Plans with one kind of exchange alone, and with several; of few tables each is improved first.

        The quick ones come before all else: bounds, listings and improvements may take all the time there is.
        """
        o = self.options
        kinds = [int(kind) for kind in np.unique(o.exchange) if kind != Exchange.DP]
        self.starts.quick(self.late if self.few else self._after(shares.QUICK))
        self._try_first()
        times = self.starts.families() if self.few else self._start(shares.STARTING)
        early = self._after(shares.DESCENDING)
        for some in ([], *([kind] for kind in kinds), kinds):
            if self.best is not None and (not self.small or early()):
                break
            mask = np.isin(o.exchange, [Exchange.DP, *some])
            start = leanest(o, mask)
            state = None if start is None else self._try(start, mask)
            if state is not None:
                kind = some[0] if len(some) == 1 else -1
                times[kind] = min(state.time_s, times.get(kind, np.inf))
                self.families.append(state.copy())
        self.kinds = sorted(kinds, key=lambda kind: times.get(kind, np.inf))

    def _try_first(self) -> None:
        """The schemes that were given, changed where they do not fit, and shards moved where that helps."""
        if self.first is None:
            return
        self.tried += 1
        state = repaired(self.evaluator, self.options, self.first, self.limit_bytes, self.late)
        if state is not None:
            self._keep(improve(state, self._any(), self._after(shares.GLANCE)))

    def _start(self, share: float) -> dict[int, float]:
        """Plans chosen at prices; the time of the fastest with each kind of exchange alone [s]."""
        starts = self.starts
        seconds = share * (self.deadline - self.began)
        share = max(
            min(share, share * shares.STARTING_S / max(seconds, shares.STARTING_S)),
            share * shares.STARTING_LEAST,
        )
        starts.until, starts.until_even = self._after(share), self._after(share * (1 + shares.EVENING))
        starts.run()
        self.families += [] if self.few else starts.states()
        return starts.families()

    def _near(self, part: Subspace, relaxed: Relaxation) -> float:
        """Plans near the relaxed optimum of a part of all plans; of many tables none."""
        o = self.options
        assert self.bounds is not None
        began = self.clock()
        busy = self.near_s > shares.NEAR * (began - self.bounds_began) and not self.few
        mask = part.among(o, self.bounds.curves.units(o.own))
        for option in roundings(o, relaxed) if self.small and not busy else ():
            if self.bounded_enough():
                break
            self._try(option, mask)
        self.near_s += self.clock() - began
        self.watch(self.best_s, self.bounds.bound_s)
        return self.best_s

    def _whole(self, options: Ints) -> None:
        """Plans near a relaxed optimum of whole tables: options in the order of kinds of table."""
        if not self.bounded_enough():
            self._try(options[np.argsort(np.argsort(self.options.kind_of, kind="stable"))], self._any())

    def _in_rooms(self, near: NearRooms) -> None:
        """A plan near an optimum of rooms."""
        began = self.clock()
        busy = self.near_s > shares.NEAR * (began - self.bounds_began)
        if busy or self.bounded_enough() or near.key in self.packed:
            return
        self.packed[near.key] = True
        state = by_patterns(self.evaluator, self.options, near, self.limit_bytes)
        self.tried += 1
        if state is not None:
            if state.time_s < self.best_s * _WORTH_A_TRY:
                Evening(state, self.random).run(self.bounded_enough)
            self._keep(state)
        self.near_s += self.clock() - began

    def _widen(self, share: float) -> None:
        """Raise the bound over every plan, for as much more of the time: half of it first by parts."""
        assert self.bounds is not None
        left = min(share, 1 - self._share_over())
        half_s = left / 2 * (self.deadline - self.began)
        self.bounds.widen(self._soon(0.0, left), self._soon(0.0, left / 2), half_s)

    def _try(self, option: Ints, mask: Mask) -> Packing | None:
        """Improve these schemes and pack them, in less and less memory until they fit.

        Limits: never, or all that comes of it was packed before -> None
        """
        for room in _ROOMS:
            descent = Descent(self.evaluator, self.options, self.limit_bytes * room)
            start = room, option.tobytes(), mask.tobytes()
            if start not in self.better:
                self.better[start] = descent.run(option, mask, self.bounded_enough)
            better = self.better[start]
            packed = self.packed.get(better.tobytes())
            if packed:
                return None
            if packed is None:
                self.tried += 1
                state = pack(self.evaluator, self.options, better, self.limit_bytes)
                self.packed[better.tobytes()] = state is not None
                if state is not None:
                    if self.bounds and self.small and state.time_s < self.best_s * _WORTH_A_TRY:
                        state = improve(state, mask, self.bounded_enough)
                    self._keep(state)
                    return state
        return None

    def _anneal(self) -> None:
        """Change the best plan at random, and the best of a kind of exchange alone: other valleys."""
        assert self.bounds is not None
        states = [] if self.best is None else [self.best.copy()]
        if self.small:
            near = [state for state in self.families if state.time_s < _WORTH_A_FAMILY * self.best_s]
            states += sorted(near, key=lambda state: state.time_s)[:_VALLEYS]
        tools = self.bounds.curves, self.random, self._keep, self.changed_enough
        Changing(*tools, cool=not self.small).run(states)

    def _any(self) -> Mask:
        return np.ones(self.options.group.size, dtype=bool)  # every option is allowed

    def _keep(self, state: Packing) -> None:
        time_s = state.time_s
        if time_s < self.best_s:
            self.best, self.best_s = state.copy(), time_s
            if self.bounds is not None:
                self.bounds.found(time_s)
            self.watch(time_s, self.bounds.bound_s if self.bounds else 0.0)
