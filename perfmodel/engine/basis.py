"""What every step of a pass is computed from: a setting, its kernels, the precision of bags on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.library import Array, Timing, constant
from perfmodel.engine.schemes import Exchange, list_exchanges
from perfmodel.engine.settings import Setting
from perfmodel.engine.steps import BACKWARD, FORWARD, PLACE_ROWS, Step
from perfmodel.errors import BadInputError
from perfmodel.model import capacity, kernels
from perfmodel.schema.calibration import KernelFit
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import element_bytes
from perfmodel.units import parse_ratio

Of = Any
"""A number for all tables or passes, or an array with one number for each."""

KERNEL_LIBRARY = "kernel"
_GATHER_LIMITS = ("launch_floor_s", "gather_bytes_per_s", "l2_bytes_per_s")
_GATHER_KEYS = (*_GATHER_LIMITS, "row_access_bytes")

_SORT_KEYS = ("sort_floor_s", "sort_memory_fraction")
_UNIQUE = ("hash", "torch_unique")
"""Ways to deduplicate ids: a hash table, and a sort as in ``torch.unique``."""


OPTIMIZERS: dict[str, tuple[int, int]] = {
    "none": (0, 0),
    "sgd": (0, 0),
    "rowwise-adagrad": (0, 1),
    "adagrad": (1, 0),
    "adam": (2, 0),
}
"""State of each optimizer as fp32 numbers: (per element, per row of a shard), as in FBGEMM."""


@dataclass(frozen=True)
class HostRows:
    """Rows of all tables in host memory. cached  share of them in an LRU cache in HBM; 0: read in place"""

    cached: float = 0.0

    @staticmethod
    def of(text: str, name: str = "rows") -> HostRows | None:
        """``host``, ``host-cached:10%``, or ``hbm``: None. Limits: another text, 0 %, above 100 % -> error"""
        word, _, share = text.strip().lower().partition(":")
        if text.strip().lower() in ("hbm", "host"):
            return HostRows() if word == "host" else None
        if word != "host-cached" or not share:
            raise BadInputError(f"{name} {text} is not known.", "hbm, host, or host-cached:10%.")
        cached = parse_ratio(share, f"{name} host-cached:")
        if cached > 1:
            raise BadInputError(f"{name} {text}: a cache holds 100 % of the rows at most.", f"{name} hbm")
        return HostRows(cached)

    def __str__(self) -> str:
        return f"host-cached:{100 * self.cached:.12g}%" if self.cached else "host"

    def room_bytes(self, machine: Machine) -> float:
        """Bytes of rows for which one GPU has memory (``capacity.compute_host_room``)."""
        host, hbm = machine.value("host_bytes"), machine.value("hbm_bytes")
        return capacity.compute_host_room(host, machine.gpus_per_node, hbm, self.cached)

    def as_hbm(self, machine: Machine) -> Machine:
        """The machine as if the memory for rows were its HBM, to count GPUs."""
        room = machine.quantity("host_bytes").model_copy(update={"value": self.room_bytes(machine)})
        return machine.model_copy(update={"values": {**machine.values, "hbm_bytes": room}})


@dataclass(frozen=True)
class PassBasis:
    """A setting and how its ranks are used: gives constants, and times of kernels for given bytes.

    gpus_per_node  ranks of a node, if fewer than the machine's
    payload        precision of bags on the wire, one of ``PAYLOADS``; None: the precision of pooling
    training       whether a pass is forward and backward, or forward alone
    optimizer      whose state is in memory: a key of ``OPTIMIZERS``
    rows           rows in host memory; None: in HBM
    unpooled       whether each id of a sample has its row in the output, instead of a bag of them
    """

    setting: Setting
    gpus_per_node: int | None = None
    payload: str | None = None
    training: bool = False
    optimizer: str = "none"
    rows: HostRows | None = field(default=None, kw_only=True)
    unpooled: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.payload is not None:
            element_bytes(self.payload, "payload")  # raises if unknown

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of a pass, in order."""
        steps = (*FORWARD, *BACKWARD) if self.training else FORWARD
        kept = [step for step in steps if self.rows or not step.hosted]
        return tuple(step for step in kept if self.unpooled or step.name != PLACE_ROWS)

    @property
    def room_bytes(self) -> float:
        """Memory of one GPU for rows, before the reserve: its HBM, or ``HostRows.room_bytes``."""
        machine = self.setting.machine
        return self.rows.room_bytes(machine) if self.rows else machine.value("hbm_bytes")

    @property
    def buffer_weight(self) -> float:
        """Memory that a byte of an exchange buffer, which is in HBM, takes of that for rows [-].

        Limits: rows in HBM -> 1;  rows in host memory -> ``HostRows.room_bytes`` over the HBM
        """
        return self.room_bytes / self.setting.machine.value("hbm_bytes")

    @property
    def sent_element_bytes(self) -> float:
        """v, bytes of an element of a bag on the wire."""
        if self.payload is None:
            return self.constant("pooled_element_bytes")
        return float(element_bytes(self.payload, "payload"))

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Exchanges of bags that a row-wise pass may use; each configuration uses the fastest."""
        return list_exchanges(self.setting.backend)

    @property
    def state(self) -> tuple[float, float]:
        """State of the optimizer [bytes]: (per element, per row of a shard)."""
        if self.optimizer not in OPTIMIZERS:
            raise unknown_name("optimizer", self.optimizer, OPTIMIZERS)
        per_element, per_row = OPTIMIZERS[self.optimizer]
        number_bytes = self.constant("optimizer_state_bytes")
        return per_element * number_bytes, per_row * number_bytes

    def constant(self, key: str) -> float:
        """A constant of the software or of the kernel model, by its key."""
        return self.setting.constants.value(key)

    def get_kernel_factor(self, step: str) -> float:
        """Factor k of a kernel's band, [t / k, t k]: from the fit of this kernel, else from published errors.

        Without a fit, the spread of the machine's constants is added (``_spread``).
        """
        fit = self.get_kernel_fit(step)
        if fit is None:
            return kernels.compute_error_factor(self.constant("mean_relative_error"), self._z)
        return float(np.exp(self._z * fit.log_sd))

    @property
    def _z(self) -> float:
        return self.constant("normal_quantile_95")

    def _spread(
        self, time: Array, floor: Array | float, names: tuple[str, ...], cached: NDArray[np.bool_] | np.bool_
    ) -> Array:
        """Standard deviation of ln(kernel time) because the sources of its constants disagree [-].

        names, cached  the constants that dominate the time, as in ``_time_kernel``
        """
        quantity = self.setting.machine.quantity
        floor_sd, rate_sd, *l2_sd = (quantity(key).log_sd or 0.0 for key in names)
        share = floor / time
        sd = np.where(cached, l2_sd[0], rate_sd) if l2_sd else rate_sd
        return np.hypot(share * floor_sd, (1 - share) * sd)

    def get_kernel_fit(self, step: str) -> KernelFit | None:
        """Errors of the calibration's fit of this kernel; None if its constants are the machine file's."""
        constants = self.setting.kernels
        return constants.fits.get(step) if constants else None  # type: ignore[call-overload]

    def domain(self, G: Array) -> Array:
        """Ranks, of G, that reach each other without a network card: of a scale-up domain, else of a node."""
        machine = self.setting.machine
        return np.minimum(G, machine.domain_gpus_of(self.gpus_per_node or machine.gpus_per_node))

    def time_gather(self, dram: Array, l2: Array, launches: Array | float = 1.0) -> Timing:
        """Time of a gather-and-pool kernel (``kernels.gather_pool_time``), with its band.

        dram, l2  bytes that pass DRAM and L2
        launches  number of kernels, each with its own launch floor
        """
        value, names = self.setting.machine.value, _GATHER_LIMITS
        floor_s, rate, l2_rate = (value(name) for name in names)
        time = kernels.gather_pool_time(dram, l2, floor_s, rate, l2_rate, launches)
        cached = dram / rate < l2 / l2_rate
        return self._time_kernel("gather_pool", dram, time, floor_s * launches, _GATHER_KEYS, names, cached)

    def time_stream(self, step: str, moved: Array, floor: str, rate: str) -> Timing:
        """Time of a kernel that streams ``moved`` bytes, with the constants ``floor`` and ``rate``."""
        value = self.setting.machine.value
        floor_s = value(floor)
        time = kernels.stream_kernel_time(moved, floor_s, value(rate))
        return self._time_kernel(step, moved, time, floor_s, (floor, rate), (floor, rate), np.bool_(False))

    def time_cache(self, indices: Array) -> Timing:
        """Time to look up rows in the cache of rows in host memory. indices  their bytes

        Source of the band: spread of the constants
        """
        names, software = ("cache_floor_s", "cache_row_s"), self.constant
        floor_s, rate = software(names[0]), software("cache_index_bytes") / software(names[1])
        k = self._factor(names[1])
        ends = ((1 / k, rate * k), (1.0, rate), (k, rate / k))
        times = [kernels.stream_kernel_time(indices, part * floor_s, end) for part, end in ends]
        return _build_timing(times, floor_s, names, Evidence.TRANSFERRED.rank)

    def time_link(self, wire: Array, packets: Array, gpus: Of) -> Timing:
        """Time to read rows over the link to the host.

        wire, packets  bytes of the link with and without the look-up of a page for each short row
        Source of the band: spreads of the constants. If several GPUs of a node read at once, their links may
        share an uplink, unless they are coherent links of a CPU (C2C), faster than PCIe
        Limits: short rows -> the lower end has no look-ups of pages, the upper end more of them
        """
        value, software = self.setting.machine.value, self.constant
        names = ("host_latency_s", "host_link_bytes_per_s", "link_packet_fraction", "link_row_bytes")
        floor_s, link = software(names[0]), value(names[1])
        rate, k = link * software(names[2]), self._factor(names[2])
        alone = np.asarray(gpus) * (link <= value("pcie_bytes_per_s")) <= 1
        shared = np.where(alone, 1.0, software("shared_uplink_fraction"))
        most = packets + (wire - packets) * self._factor(names[3])
        ends = ((packets, min(rate * k, link)), (wire, rate), (most, rate / k * shared))
        times = [kernels.stream_kernel_time(moved, floor_s, end) for moved, end in ends]
        rank = np.where(alone, Evidence.TRANSFERRED.rank, Evidence.ASSUMED.rank)
        return _build_timing(times, floor_s, names, rank)

    def _factor(self, key: str) -> float:
        """Factor k of a constant of the software in whose range, from 1/k to k, 95 % are."""
        return float(np.exp(self._z * (self.setting.constants.quantity(key).log_sd or 0.0)))

    def sort_ends(self, digits: Of, *, alone: bool) -> tuple[tuple[Of, float], tuple[Of, float]]:
        """(floor [s], rate [bytes/s]) of the fastest and of the slowest implementation that deduplicates ids.

        digits  8-bit digits of an id in the sort of the backward pass
        alone   True: only that sort, FBGEMM's; False: our hash table or ``torch.unique``, as models use
                either
        """
        constant, memory = self.constant, self.setting.machine.value("hbm_bytes_per_s")
        if not alone:
            ends = [(constant(f"{x}_floor_s"), memory * constant(f"{x}_memory_fraction")) for x in _UNIQUE]
            return ends[0], ends[1]
        floor = kernels.sort_floor(constant("sort_floor_s"), constant("sort_digit_s"), digits)
        rate = memory * constant("sort_memory_fraction")
        sd = self.setting.constants.quantity("sort_digit_s").log_sd or 0.0
        wide = float(np.exp(constant("normal_quantile_95") * sd))
        return (floor / wide, rate * wide), (floor * wide, rate / wide)

    def sort_middle(self, digits: Of, *, alone: bool) -> tuple[Of, float]:
        """(floor, rate) that is used for deduplicating ids: the geometric means of both ``sort_ends``."""
        ends = self.sort_ends(digits, alone=alone)
        floor, rate = (np.sqrt(fast * slow) for fast, slow in zip(*ends, strict=True))
        return floor, float(rate)

    def time_sort(self, moved: Array, digits: Of, launches: Array | float = 1.0, *, alone: bool) -> Timing:
        """Time to deduplicate ids, with ``sort_ends`` as its band.

        moved  bytes, as ``exchanges.sort_bytes`` counts
        """
        ends, middle = self.sort_ends(digits, alone=alone), self.sort_middle(digits, alone=alone)
        floors, rates = zip(*ends, strict=True)
        pairs = (np.minimum(*floors), max(rates)), middle, (np.maximum(*floors), min(rates))
        times = [kernels.stream_kernel_time(moved, floor, rate, launches) for floor, rate in pairs]
        return _build_timing(times, middle[0] * launches, _SORT_KEYS, Evidence.TRANSFERRED.rank)

    def _time_kernel(
        self,
        step: str,
        moved: Array,
        time: Array,
        floor: Array | float,
        keys: tuple[str, ...],
        names: tuple[str, ...],
        cached: NDArray[np.bool_] | np.bool_,
    ) -> Timing:
        """A kernel's time with its band and evidence.

        moved   bytes that it moves: above the bytes that were timed, its constants are extrapolated, and
                constants that the samples do not determine count too
        keys    constants that the time depends on, whose weakest evidence counts
        names   keys of the launch floor, of the rate, and of the rate when ``cached``: the dominant one is
                named
        """
        shape, fit = time.shape, self.get_kernel_fit(step)
        k: Array | float = self.get_kernel_factor(step)
        if fit is None:
            k = kernels.widen_factor(k, self._spread(time, floor, names, cached), self._z)
        ranks = [self.setting.machine.quantity(key).evidence.rank for key in keys]
        rank, code = constant(max(ranks), shape), constant(0, shape)
        if fit is not None:
            inside = (moved >= 0.999 * fit.low_bytes) & (moved <= 1.001 * fit.high_bytes)
            determined = [r for r, key in zip(ranks, keys, strict=True) if not self._is_untold(key)]
            weakest = max([*determined, Evidence.INTERPOLATED.rank])
            rank = np.where(inside, weakest, np.maximum(rank, Evidence.EXTRAPOLATED.rank)).astype(np.int8)
        limit = np.where(time - floor > floor, 1 + cached.astype(np.int8), 0).astype(np.int8)
        floors = np.broadcast_to(np.asarray(floor, dtype=np.float64), shape)
        return Timing(time, time / k, time * k, floors, rank, limit, names, code, (KERNEL_LIBRARY,))

    def _is_untold(self, key: str) -> bool:
        """Whether the kernels' samples leave a constant undetermined: it hardly affects their times."""
        fitted = self.setting.kernels
        if fitted is None or key in self.setting.machine.overrides:
            return False
        return key in fitted.untold or (key in fitted.values and not fitted.values[key].known)


def _build_timing(times: Sequence[Array], floor: Of, names: tuple[str, ...], rank: Of) -> Timing:
    """A kernel's times: low end, middle and high end."""
    low, time, high = times
    floors = np.broadcast_to(np.asarray(floor, dtype=np.float64), time.shape)
    ranks = np.broadcast_to(np.asarray(rank, dtype=np.int8), time.shape)
    limit, library = (time - floors > floors).astype(np.int8), constant(0, time.shape)
    return Timing(time, low, high, floors, ranks, limit, names, library, (KERNEL_LIBRARY,))
