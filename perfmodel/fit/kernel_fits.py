"""From kernel samples to the constants of the kernel model, with the bytes that a projection counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from perfmodel.fit.context import read_times
from perfmodel.fit.curve_fits import half_widths, solve
from perfmodel.fit.law_fits import make_interval, rounded
from perfmodel.model import exchanges, kernels
from perfmodel.schema.calibration import IMPLEMENTATIONS, InPass, KernelConstants, KernelFit, KernelStep
from perfmodel.schema.evidence import Clock
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_kernel_constants
from perfmodel.schema.workload import element_bytes

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Bounds = dict[str, tuple[float, float]]
Values = Mapping[str, float]
"""Constants by machine key."""

_KEYS = ("bucketize_floor_s", "bucketize_bytes_per_s")
"""Constants of the step that is timed in our own pass alone."""
_OF_THE_PASS = ("torch", "fbgemm", "perfmodel")
"""Whose kernels our own pass uses: the first of these implementations that was also timed alone."""
_BOUNDS = {"row_access_bytes": (8.0, 4096.0), "bag_factor": (0.1, 50.0)}
_FARTHEST = 1e3
"""Largest factor between a floor or rate and the value that the samples show."""
_AT_BOUND = 1e-3
_CACHE = "l2_bytes_per_s"
_MEMORY = "gather_bytes_per_s"
_FEWEST_PASSES = 3
_FACTORS = (float(np.log(0.5)), float(np.log(20.0)))
_SHORTEST_S = 1e-9
_NO_TIME_S = 2e-9  # a fit that ends at the shortest time is a little above it


@dataclass(frozen=True)
class _Kernel:
    """Timed calls of one kernel, and the model of their time.

    start, bounds  first guess and (low, high) of each constant;  time_s  measured times
    time, moved_bytes  times [s] and bytes of the calls by the model, from the constants
    """

    start: Values
    bounds: Bounds
    time_s: Floats
    time: Callable[[Values], Floats]
    moved_bytes: Callable[[Values], Floats]


class _Fitted(NamedTuple):
    """The constants of a kernel: logarithms with half-widths, or ``fixed`` to the machine's values."""

    kernel: _Kernel
    fixed: dict[str, float]
    logs: dict[str, float]
    wide: list[float]

    @property
    def values(self) -> dict[str, float]:
        """All constants."""
        return self.fixed | {key: float(np.exp(q)) for key, q in self.logs.items()}


def fit_kernels(
    samples: pd.DataFrame, machine: Machine, clock: Clock, passes: pd.DataFrame | None = None
) -> list[KernelConstants]:
    """Constants of each implementation, from its look-ups, in the order of ``IMPLEMENTATIONS``.

    clock    only samples that were timed in this way (device, graph, stream, eager) are used
    samples  ``Run.work_samples``; the fit uses those on the largest number of ranks that are neither held
             out nor throttled
    passes   whole passes that a fit may use (``select_passes``). They say how much slower a gather is in a
             pass than alone, and the constants of bucketize, for all implementations alike.
    Relative residuals, soft-l1 loss. A constant that the samples do not determine (interval wider than its
    value) stays as in the machine file (``untold``), unless the samples contradict it.
    Limits: fewer samples of a kernel than constants + 1 -> its constants stay the machine file's; too few of
    all kernels of an implementation -> it is left out
    """
    keep = (samples["clock"] == str(clock)) & (samples["operation"] == "gather_pool")
    rows = samples[keep & ~samples["held_out"].astype(bool) & (samples["flag"] != "throttled")]
    names = sorted({str(name) for name in rows["implementation"]})
    of_the_pass = next((name for name in (*_OF_THE_PASS, *names) if name in names), "")
    timed = build_kernel("bucketize", _select_timed("bucketize", passes), machine)
    bucketize = _determine(timed, machine)
    fits: list[KernelConstants] = []
    slower = None
    for name in sorted(names, key=lambda name: name != of_the_pass):
        cells = rows[rows["implementation"] == name]
        cells = cells[cells["gpus"] == cells["gpus"].max()]
        gather = _determine(build_kernel("gather_pool", cells, machine), machine)
        if gather and name == of_the_pass:
            slower = _fit_in_pass(passes, machine, gather.values)
        if gather or (bucketize and name == of_the_pass):
            fits.append(_record_constants(name, clock, gather, bucketize, slower))
    return sorted(fits, key=lambda fit: [*IMPLEMENTATIONS, fit.implementation].index(fit.implementation))


def _record_constants(
    implementation: str,
    clock: Clock,
    gather: _Fitted | None,
    bucketize: _Fitted | None,
    slower: InPass | None,
) -> KernelConstants:
    """The constants of an implementation, from both fits (None: not fitted). slower  its gather in a pass"""
    values: dict[str, Interval] = {}
    at_bound: list[str] = []
    untold: list[str] = []
    fits: dict[KernelStep, KernelFit] = {}
    steps: tuple[tuple[KernelStep, _Fitted | None, InPass | None], ...]
    steps = ("gather_pool", gather, slower), ("bucketize", bucketize, None)
    for step, fitted, there in steps:
        if fitted is None:
            continue
        # in a pass a step takes ``factor`` times as long and ``more_s`` more: floors grow, rates fall
        factor, more_s = (there.factor, there.more_s) if there else (1.0, 0.0)
        for (key, q), wide in zip(fitted.logs.items(), fitted.wide, strict=True):
            scale = factor if key.endswith("floor_s") else 1 / factor if key.endswith("per_s") else 1.0
            shift = more_s if key.endswith("floor_s") else 0.0
            ends = (float(np.exp(q + side * wide)) * scale + shift for side in (0, -1, 1))
            values[key] = make_interval(*ends)
            if min(abs(q - np.log(limit)) for limit in fitted.kernel.bounds[key]) < _AT_BOUND:
                at_bound.append(key)
        untold += fitted.fixed
        fits[step] = _summarize(fitted, there)
    return KernelConstants(
        values=values,
        fits=fits,
        at_bound=at_bound,
        untold=untold,
        in_pass={"gather_pool": slower} if slower else {},
        implementation=implementation,
        clock=clock,
    )


def _select_timed(step: KernelStep, passes: pd.DataFrame | None) -> pd.DataFrame:
    """The passes in which a step was timed, with its times [s]; each rank holds a shard."""
    import pandas as pd

    if passes is None or passes.empty:
        return pd.DataFrame()
    times = read_times(passes, step)
    timed = np.isfinite(times)
    return passes[timed].assign(time_s=times[timed], shards=passes["gpus"][timed])


def build_kernel(step: KernelStep, cells: pd.DataFrame, machine: Machine) -> _Kernel | None:
    """The model of the times of a step's kernel: gather_pool or bucketize. Limits: no cells -> None"""
    if cells.empty:
        return None
    names = ("batch", "tables", "pooling", "dim", "shards", "id_bytes", "rows", "time_s")
    columns = {name: cells[name].to_numpy(float) for name in names}
    if step == "gather_pool":
        row = columns["dim"] * np.array([float(element_bytes(name)) for name in cells["dtype"]])
        return _build_gather(columns, row, machine)
    bags = columns["batch"] * columns["tables"]
    length = load_kernel_constants()["length_bytes"].value
    moved = exchanges.ids_bytes(bags * columns["pooling"], columns["id_bytes"])
    moved = moved + exchanges.lengths_bytes(columns["shards"], bags, length)
    start, bounds = _guess(columns["time_s"], moved, *_KEYS)

    def time(values: Values) -> Floats:
        return np.asarray(kernels.stream_kernel_time(moved, *(values[key] for key in _KEYS)))

    return _Kernel(start, bounds, columns["time_s"], time, lambda values: moved)


def _guess(times: Floats, moved: Floats, floor: str, rate: str) -> tuple[dict[str, float], Bounds]:
    """First guesses and bounds of a floor [s] and a rate [bytes/s], by key, from times and bytes of calls."""
    shortest = float(times.min())
    fastest = float((moved / times).max())
    bounds = {key: (x / _FARTHEST, x * _FARTHEST) for key, x in ((floor, shortest), (rate, fastest))}
    return {floor: shortest / 2, rate: fastest}, bounds


def _build_gather(columns: Mapping[str, Floats], row: Floats, machine: Machine) -> _Kernel:
    """The model of ``gather_pool_time`` for one shard of the tables; short rows and bags cost more.

    row  bytes of a row [bytes]. Calls rotate through more rows than the L2 holds: ids of each are uniform
    """
    constants = load_kernel_constants()
    times = columns["time_s"]
    ids = columns["id_bytes"]
    draws = columns["batch"] * columns["pooling"]  # look-ups in a table
    tables = columns["tables"]
    shards = columns["shards"]
    cache = machine.value("l2_bytes") * constants["l2_usable_fraction"].value / tables  # of a table
    bag = columns["dim"] * constants["pooled_element_bytes"].value + constants["offset_bytes"].value
    miss = kernels.compute_uniform_misses(columns["rows"] / shards, draws, row, cache)
    bags = columns["batch"] * tables * shards  # of all ranks: each shard has a partial bag of each
    sector = machine.value("sector_bytes")

    def move(least: float, factor: float) -> kernels.GatherTraffic:
        """Bytes of each call. least  bytes of an access to a row at least;  factor  on the bytes of a bag"""
        return kernels.count_traffic(miss, draws * tables, row, least, sector, ids, bags, factor * bag)

    def move_with(values: Values) -> kernels.GatherTraffic:
        return move(values["row_access_bytes"], values["bag_factor"])

    def time(values: Values) -> Floats:
        memory = values[_MEMORY]  # behind a cache that is at least as fast
        rates = values["launch_floor_s"], memory, max(memory, values["l2_bytes_per_s"])
        return np.asarray(kernels.gather_pool_time(*move_with(values), *rates))

    plain = move(0.0, 1.0)
    start, bounds = _guess(times, plain.dram_bytes, "launch_floor_s", "gather_bytes_per_s")
    fastest = float((plain.l2_bytes / times).max())
    start |= {"l2_bytes_per_s": 2 * fastest, "row_access_bytes": float(np.median(row)), "bag_factor": 1.0}
    bounds |= {**_BOUNDS, "l2_bytes_per_s": (fastest / 2, fastest * _FARTHEST)}
    return _Kernel(start, bounds, times, time, lambda values: move_with(values).dram_bytes)


def _solve(kernel: _Kernel, start: Values, fixed: Values, rows: slice | Bools = slice(None)) -> Any:
    """The constants that are not ``fixed``, fitted to some calls (``rows``); a result of least_squares."""
    free = [key for key in kernel.start if key not in fixed]
    logs = np.log(kernel.time_s[rows])

    def residual(q: Floats) -> Floats:
        values = {**fixed, **dict(zip(free, np.exp(q), strict=True))}
        return np.asarray(np.log(kernel.time(values)[rows]) - logs)

    bounds = [(float(np.log(low)), float(np.log(high))) for low, high in (kernel.bounds[key] for key in free)]
    return solve(residual, [float(np.log(start[key])) for key in free], bounds)


def _determine(kernel: _Kernel | None, machine: Machine) -> _Fitted | None:
    """The constants of a kernel that the samples determine; others have the machine's values.

    The better fit from two starts: a fit may get stuck where DRAM and L2 take equal time. The machine's
    values stand for those with wide intervals, and for the rate of a cache without which the samples fit as
    well, unless the samples contradict them (F test at 95 %): then all are fitted.
    Limits: costs equal to six digits -> that of the first start, whatever rounding says;  the machine's cache
    is slower than the memory of the samples -> all are fitted;  too few samples -> None
    """
    if kernel is None or kernel.time_s.size <= len(kernel.start):
        return None
    starts = [dict(kernel.start)]
    if _CACHE in kernel.start:
        rates = {_MEMORY: 4.0, _CACHE: 0.5}
        starts.append({key: value * rates.get(key, 1.0) for key, value in kernel.start.items()})
    solution = min((_solve(kernel, start, {}) for start in starts), key=lambda s: float(f"{s.cost:.6g}"))
    wide = half_widths(solution.fun, solution.jac)
    free = kernel.time_s.size - len(kernel.start)
    worse = (1 + stdtrit(free, 0.975) ** 2 / free) * solution.cost  # the F test: a fit as good costs less
    fitted = dict(zip(kernel.start, np.exp(solution.x).tolist(), strict=True))
    unseen = {key for key, half in zip(kernel.start, wide, strict=True) if np.sinh(half) >= 1.0}
    endless = {_CACHE: kernel.bounds[_CACHE][1]} if _CACHE in kernel.start else {}  # a cache of any rate
    if endless and _solve(kernel, fitted, endless).cost <= worse:
        unseen.add(_CACHE)
    fixed = {key: machine.value(key) for key in kernel.start if key in unseen}
    again = _solve(kernel, fitted, fixed) if fixed and fixed.keys() != fitted.keys() else None
    if again and again.cost <= worse:
        names = [key for key in kernel.start if key not in fixed]
        logs = dict(zip(names, again.x.tolist(), strict=True))
        compatible = _Fitted(kernel, fixed, logs, half_widths(again.fun, again.jac))
        if not endless or compatible.values[_MEMORY] <= compatible.values[_CACHE]:
            return compatible
    return _Fitted(kernel, {}, dict(zip(kernel.start, solution.x.tolist(), strict=True)), wide)


def _fit_in_pass(passes: pd.DataFrame | None, machine: Machine, known: Values) -> InPass | None:
    """How a whole pass slows the gather: a factor (cold caches) and an added time (a library's threads).

    known  constants of the gather alone. Limits: fewer than 3 passes -> None;  3 -> only a factor
    """
    modelled = build_kernel("gather_pool", _select_timed("gather_pool", passes), machine)
    if modelled is None or modelled.time_s.size < _FEWEST_PASSES:
        return None
    alone = modelled.time({key: known[key] if key in known else machine.value(key) for key in modelled.start})
    logs = np.log(modelled.time_s)

    def residual(x: Floats) -> Floats:
        """ln(t_fit / t) of each pass; x  ln of the factor and, if it is free, of the added time."""
        factor, *more = np.exp(x)
        return np.asarray(np.log(factor * alone + sum(more)) - logs)

    shifts = (float(np.log(_SHORTEST_S)), float(np.log(modelled.time_s.max())))
    start = [0.0, float(np.log(modelled.time_s.min() / 10))]
    free = 1 if modelled.time_s.size <= _FEWEST_PASSES else 2
    best = solve(residual, start[:free], [_FACTORS, shifts][:free])
    factor, *more = np.exp(best.x).tolist()
    return InPass(
        factor=rounded(factor),
        more_s=sum(rounded(time_s) for time_s in more if time_s > _NO_TIME_S),
        log_sd=_measure_errors(np.asarray(best.fun))["log_sd"],
        passes=modelled.time_s.size,
    )


def _summarize(fitted: _Fitted, there: InPass | None) -> KernelFit:
    """How good a fit is: errors ln(t_fit / t), each by a fit to all others. there  slowing in a pass"""
    kernel = fitted.kernel
    values = fitted.values
    left_out = np.empty(kernel.time_s.size)
    for i in range(left_out.size):
        q = _solve(kernel, values, fitted.fixed, np.arange(left_out.size) != i).x
        others = fitted.fixed | dict(zip(fitted.logs, np.exp(q), strict=True))
        left_out[i] = float(np.log(kernel.time(others)[i] / kernel.time_s[i]))
    errors = _measure_errors(left_out)
    moved = kernel.moved_bytes(values)
    return KernelFit(
        **errors | {"log_sd": max(errors["log_sd"], there.log_sd if there else 0.0)},
        sample_count=left_out.size + (there.passes if there else 0),
        low_bytes=rounded(float(moved.min())),
        high_bytes=rounded(float(moved.max())),
    )


def _measure_errors(errors: Floats) -> dict[str, float]:
    """Of ``errors`` ln(t_fit / t): root mean square, with outliers (a projection has them), and quantiles."""
    relative = np.abs(np.expm1(errors))
    return {
        "log_sd": rounded(float(np.sqrt(np.mean(errors**2))), 3),
        "loo_median": rounded(float(np.quantile(relative, 0.5)), 3),
        "loo_p90": rounded(float(np.quantile(relative, 0.9)), 3),
    }
