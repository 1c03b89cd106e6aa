"""From kernel samples to the constants of the kernel model, with the bytes that a projection counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfmodel.fit.context import estimate_times
from perfmodel.fit.hits import miss_ratios
from perfmodel.fit.links import rounded
from perfmodel.fit.robust import half_widths, solve
from perfmodel.model import embedding_bag, kernels
from perfmodel.schema.evidence import Clock
from perfmodel.schema.fields import Interval
from perfmodel.schema.kernel_fits import InPass, KernelConstants, KernelFit, KernelStep
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import Constants, load_kernel_constants
from perfmodel.schema.workload import element_bytes

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

_STEPS: dict[str, KernelStep] = {
    "gather_pool": "gather_pool",
    "bucketize": "bucketize",
    "partial_sum": "local_sum",
}
"""Step of a projection that each kernel operation informs."""
_ROW_BYTES = (8.0, 4096.0)
_BAG_FACTORS = (0.1, 50.0)
"""Bounds of ``row_access_bytes`` and of ``bag_factor``."""
_FARTHEST = 1e3
"""Largest factor between a floor or rate and the value that the samples show."""
_AT_BOUND = 1e-3
_CLEARLY_WORSE = 1.1
"""Samples contradict a fit whose loss exceeds the loss of a better fit by this factor."""
_FEWEST_PASSES = 3
_FACTORS = (float(np.log(0.5)), float(np.log(20.0)))
_SHORTEST_S = 1e-9


@dataclass(frozen=True)
class _Problem:
    """Fit of one kernel: ``time`` as a function of the parameters (natural units), and measured times.

    keys, start, bounds   one per parameter
    moved_bytes           bytes that the model counts, as a function of the parameters
    """

    keys: tuple[str, ...]
    start: tuple[float, ...]
    bounds: tuple[tuple[float, float], ...]
    time: Callable[[Floats, npt.NDArray[np.bool_]], Floats]
    time_s: Floats
    moved_bytes: Callable[[Floats], Floats]


def fit_implementation(
    implementation: str,
    rows: pd.DataFrame,
    machine: Machine,
    clock: Clock,
    passes: pd.DataFrame | None,
    known_in_pass: Mapping[KernelStep, InPass],
) -> KernelConstants | None:
    """Constants of the kernel model for one implementation, from its ``usable`` samples on the same ranks.

    Relative residuals, soft-l1 loss. The local sum has the floor of the gather, as in a projection.
    passes   whole passes with exactly these kernels: they give ``in_pass``, the factor by which a kernel is
             slower there, where another step has used the caches
    known_in_pass  the same factors of other implementations, used without such passes
    A constant that the samples do not determine (interval wider than its value) stays as in the machine file
    (``untold``), unless the machine file's value fits clearly worse.
    Limits: fewer samples of a kernel than constants + 1 -> its constants stay the machine file's; too few of
    all kernels -> None
    """
    constants = load_kernel_constants()
    found: dict[str, Interval] = {}
    alone: dict[str, float] = {}  # times in loops of one kernel
    fits: dict[KernelStep, KernelFit] = {}
    in_pass: dict[KernelStep, InPass] = {}
    errors, bounds, untold = [np.empty(0)], list[str](), list[str]()
    for operation, step in _STEPS.items():
        cells = rows[rows["operation"] == operation]
        problem = _problem(step, cells, machine, constants, alone)
        if problem is None or problem.time_s.size <= len(problem.keys):
            continue
        problem, solution, unseen = _told(problem, _best(problem), machine)
        untold += unseen
        there = _in_pass(step, passes, machine, constants, solution.x, problem) or known_in_pass.get(step)
        values, at_bound = _fitted(problem, solution, there)
        found |= values
        alone |= dict(zip(problem.keys, np.exp(solution.x).tolist(), strict=True))
        in_pass |= {step: there} if there else {}
        left_out = _left_out(problem, solution)
        fits[step] = _summary(problem.moved_bytes(np.exp(solution.x)), left_out, there)
        errors.append(left_out)
        bounds += at_bound
    if not fits:
        return None
    together = np.concatenate(errors)
    return KernelConstants(
        values=found,
        fits=fits,
        log_sd=_log_sd(together),
        sample_count=sum(fit.sample_count for fit in fits.values()),
        loo_median=_share(together, 0.5),
        loo_p90=_share(together, 0.9),
        at_bound=bounds,
        untold=untold,
        in_pass=in_pass,
        implementation=implementation,
        clock=clock,
    )


def gather_times(cells: pd.DataFrame, machine: Machine, known: KernelConstants) -> Floats:
    """Times of gathers by fitted constants, for a kernel in a loop of its own [s].

    cells  timed gathers: rows of ``Run.kernel_samples``, with any distribution of ids
    known  result of ``fit_implementation`` without passes
    """
    problem = _gather(cells, machine, load_kernel_constants())
    values = [known.values[key].value if key in known.values else machine.value(key) for key in problem.keys]
    return problem.time(np.array(values), np.ones(len(cells), bool))


def usable(samples: pd.DataFrame, clock: Clock) -> pd.DataFrame:
    """Kernel samples that a fit may use, at one clock."""
    keep = (samples["clock"] == str(clock)) & (samples["distribution"] == "uniform")
    keep &= ~samples["held_out"].astype(bool) & (samples["flag"] != "throttled")
    keep &= samples["operation"].isin(list(_STEPS))
    return samples[keep]


def _problem(
    step: str, cells: pd.DataFrame, machine: Machine, constants: Constants, known: dict[str, float]
) -> _Problem | None:
    if cells.empty:
        return None
    if step == "gather_pool":
        return _gather(cells, machine, constants)
    bags = (cells["batch"] * cells["tables"]).to_numpy(float)
    shards = cells["shards"].to_numpy(float)
    if step == "bucketize":
        moved = embedding_bag.bucketize_bytes(
            _lookups(cells), cells["id_bytes"].to_numpy(float), shards, bags, constants.value("length_bytes")
        )
        return _stream(cells, moved, "bucketize_floor_s", "bucketize_bytes_per_s", None)
    width = constants.value("pooled_element_bytes")
    moved = embedding_bag.local_sum_bytes(shards, bags * cells["dim"].to_numpy(float), width)
    floor = known.get("launch_floor_s", machine.value("launch_floor_s"))
    return _stream(cells, moved, "", "local_sum_bytes_per_s", floor)


def _lookups(cells: pd.DataFrame) -> Floats:
    return (cells["batch"] * cells["tables"] * cells["pooling"]).to_numpy(float)


def _stream(cells: pd.DataFrame, moved: Floats, floor: str, rate: str, fixed: float | None) -> _Problem:
    """The fit of ``stream_kernel_time``; the floor is ``fixed``, or a parameter if that is None."""
    times = cells["time_s"].to_numpy(float)

    def time(q: Floats, rows: npt.NDArray[np.bool_]) -> Floats:
        floor_s = q[0] if fixed is None else fixed
        return np.asarray(kernels.stream_kernel_time(moved[rows], floor_s, q[-1]))

    keys, start, bounds = _floor_and_rate(times, moved, floor, rate)
    few = slice(None) if fixed is None else slice(1, None)
    return _Problem(keys[few], start[few], bounds[few], time, times, lambda q: moved)


def _floor_and_rate(times: Floats, moved: Floats, floor: str, rate: str) -> tuple[Any, Any, Any]:
    """Keys, first guesses and bounds for a floor and a rate."""
    least, fastest = float(times.min()), float((moved / times).max())
    bounds = tuple((value / _FARTHEST, value * _FARTHEST) for value in (least, fastest))
    return (floor, rate), (least / 2, fastest), bounds


def _gather(cells: pd.DataFrame, machine: Machine, constants: Constants) -> _Problem:
    """The fit of ``gather_pool_time`` for one shard of the tables, with the costs of short rows and bags."""
    times = cells["time_s"].to_numpy(float)
    dim, tables = cells["dim"].to_numpy(float), cells["tables"].to_numpy(float)
    row = dim * np.array([float(element_bytes(name)) for name in cells["dtype"]])
    cache = machine.value("l2_bytes") * constants.value("l2_usable_fraction") / tables
    bag = dim * constants.value("pooled_element_bytes") + constants.value("offset_bytes")
    shards, ids = cells["shards"].to_numpy(float), cells["id_bytes"].to_numpy(float)
    miss, sector = miss_ratios(cells, row, cache), machine.value("sector_bytes")
    bags = (cells["batch"] * cells["tables"]).to_numpy(float) * shards

    def traffic(least: float, factor: float) -> kernels.GatherTraffic:
        lookups = _lookups(cells)
        return kernels.traffic_of_misses(miss, lookups, row, least, sector, ids, bags, factor * bag)

    def time(q: Floats, rows: npt.NDArray[np.bool_]) -> Floats:
        moved = traffic(q[3], q[4])
        dram, passed = moved.dram_bytes[rows], moved.l2_bytes[rows]
        return np.asarray(kernels.gather_pool_time(dram, passed, q[0], q[1], q[2]))

    plain = traffic(0.0, 1.0)
    keys, start, bounds = _floor_and_rate(times, plain.dram_bytes, "launch_floor_s", "gather_bytes_per_s")
    fastest = float((plain.l2_bytes / times).max())
    return _Problem(
        (*keys, "l2_bytes_per_s", "row_access_bytes", "bag_factor"),
        (*start, 2 * fastest, float(np.median(row)), 1.0),
        (*bounds, (fastest / 2, fastest * _FARTHEST), _ROW_BYTES, _BAG_FACTORS),
        time,
        times,
        lambda q: traffic(q[3], q[4]).dram_bytes,
    )


def _solution(problem: _Problem, rows: npt.NDArray[np.bool_], start: Sequence[float]) -> Any:
    logs = np.log(problem.time_s[rows])

    def residual(q: Floats) -> Floats:
        return np.asarray(np.log(problem.time(np.exp(q), rows)) - logs)

    bounds = [(float(np.log(low)), float(np.log(high))) for low, high in problem.bounds]
    return solve(residual, [float(np.log(value)) for value in start], bounds)


def _best(problem: _Problem) -> Any:
    """The better solution from two starts: a fit may get stuck where DRAM and L2 take equal time.

    Limits: costs equal to six digits -> that of the first start, whatever rounding says
    """
    everything = np.ones(problem.time_s.size, bool)
    starts = [list(problem.start), list(problem.start)]
    if "l2_bytes_per_s" in problem.keys:
        starts[1][1] = 4 * problem.start[1]
        starts[1][2] = problem.start[2] / 2
    return min(
        (_solution(problem, everything, start) for start in starts), key=lambda s: float(f"{s.cost:.6g}")
    )


def _told(problem: _Problem, solution: Any, machine: Machine) -> tuple[_Problem, Any, list[str]]:
    """The fit without constants that the samples do not determine: these keep the machine's values.

    Limits: a fit with the machine's values is clearly worse -> all constants are kept, with wide intervals
    """
    wide = half_widths(solution)
    unseen = [key for key, half in zip(problem.keys, wide, strict=True) if np.sinh(half) >= 1.0]
    if not unseen or len(unseen) == len(problem.keys):
        return problem, solution, []
    fewer = _fixed(problem, {key: machine.value(key) for key in unseen})
    start = [float(np.exp(q)) for key, q in zip(problem.keys, solution.x, strict=True) if key not in unseen]
    again = _solution(fewer, np.ones(problem.time_s.size, bool), start)
    if again.cost > _CLEARLY_WORSE * solution.cost:
        return problem, solution, []
    return fewer, again, unseen


def _fixed(problem: _Problem, values: Mapping[str, float]) -> _Problem:
    """The problem with some of its parameters fixed at known values."""
    kept = [i for i, key in enumerate(problem.keys) if key not in values]

    def all_of(q: Floats) -> Floats:
        full = np.array([values.get(key, 0.0) for key in problem.keys])
        full[kept] = q
        return full

    return _Problem(
        tuple(problem.keys[i] for i in kept),
        tuple(problem.start[i] for i in kept),
        tuple(problem.bounds[i] for i in kept),
        lambda q, rows: problem.time(all_of(q), rows),
        problem.time_s,
        lambda q: problem.moved_bytes(all_of(q)),
    )


def _fitted(problem: _Problem, solution: Any, there: InPass | None) -> tuple[dict[str, Interval], list[str]]:
    """(constants with intervals, names of constants that ended at a bound).

    there  slow-down of the kernel in a whole pass, which the constants include
    """
    found, at_bound = {}, []
    factor, more_s = (there.factor, there.more_s) if there else (1.0, 0.0)
    for key, q, wide, limits in zip(
        problem.keys, solution.x, half_widths(solution), problem.bounds, strict=True
    ):
        scale = factor if key.endswith("floor_s") else 1 / factor if key.endswith("per_s") else 1.0
        shift = more_s if key.endswith("floor_s") else 0.0
        value = rounded(float(np.exp(q)) * scale + shift)
        low, high = (rounded(float(np.exp(q + sign * wide)) * scale + shift, 3) for sign in (-1, 1))
        found[key] = Interval(value=value, low=min(low, value), high=max(high, value))
        if min(abs(q - np.log(limit)) for limit in limits) < _AT_BOUND:
            at_bound.append(key)
    return found, at_bound


def _in_pass(
    step: KernelStep,
    passes: pd.DataFrame | None,
    machine: Machine,
    constants: Constants,
    solution: Floats,
    problem: _Problem,
) -> InPass | None:
    """How a whole pass slows the kernel: a factor (cold caches) and an added time (a library's threads).

    Limits: fewer than 3 passes -> None;  3 -> only a factor
    """
    if passes is None or passes.empty:
        return None
    times = estimate_times(passes, step)
    passes = passes[np.isfinite(times)].assign(time_s=times[np.isfinite(times)])
    there = _problem(step, passes.assign(shards=passes["gpus"]), machine, constants, {})
    if there is None or there.time_s.size < _FEWEST_PASSES:
        return None
    known = dict(zip(problem.keys, solution, strict=True))
    q = np.array([known.get(key, np.log(machine.value(key))) for key in there.keys])
    alone = there.time(np.exp(q), np.ones(there.time_s.size, bool))
    logs = np.log(there.time_s)

    def residual(x: Floats) -> Floats:
        more = np.exp(x[1]) if x.size > 1 else 0.0
        return np.asarray(np.log(np.exp(x[0]) * alone + more) - logs)

    shifts = (float(np.log(_SHORTEST_S)), float(np.log(there.time_s.max())))
    start, bounds = [0.0, float(np.log(there.time_s.min() / 10))], [_FACTORS, shifts]
    free = 1 if there.time_s.size <= _FEWEST_PASSES else 2
    best = solve(residual, start[:free], bounds[:free])
    more_s = float(np.exp(best.x[1])) if free > 1 else 0.0
    return InPass(
        factor=rounded(float(np.exp(best.x[0]))),
        more_s=rounded(more_s) if more_s > 2 * _SHORTEST_S else 0.0,
        log_sd=_log_sd(np.asarray(best.fun)),
        passes=there.time_s.size,
    )


def _left_out(problem: _Problem, solution: Any) -> Floats:
    """Leave-one-out errors ln(t_fit / t): each sample predicted by a fit to all others."""
    start = [float(value) for value in np.exp(solution.x)]
    errors = np.empty(problem.time_s.size)
    for i in range(errors.size):
        rest = np.arange(errors.size) != i
        q = _solution(problem, rest, start).x
        errors[i] = float(np.log(problem.time(np.exp(q), ~rest)[0] / problem.time_s[i]))
    return errors


def _summary(moved: Floats, left_out: Floats, there: InPass | None) -> KernelFit:
    return KernelFit(
        log_sd=max(_log_sd(left_out), there.log_sd if there else 0.0),
        sample_count=left_out.size + (there.passes if there else 0),
        loo_median=_share(left_out, 0.5),
        loo_p90=_share(left_out, 0.9),
        low_bytes=rounded(float(moved.min())),
        high_bytes=rounded(float(moved.max())),
    )


def _log_sd(errors: Floats) -> float:
    """Root mean square, outliers included: a projection makes such errors too."""
    return rounded(float(np.sqrt(np.mean(errors**2))), 3)


def _share(errors: Floats, share: float) -> float:
    return rounded(float(np.quantile(np.abs(np.expm1(errors)), share)), 3)
