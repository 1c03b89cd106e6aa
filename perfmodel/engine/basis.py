"""What every step of a pass is computed from: a setting, its kernels, the precision of bags on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfmodel.collectives.timings import Array, Codes, Timing, constant
from perfmodel.engine.schemes import Exchange, list_exchanges
from perfmodel.engine.settings import KERNEL_LIBRARY, Setting, find_memory_limit
from perfmodel.engine.steps import BACKWARD, FORWARD, PLACE_ROWS, Step
from perfmodel.errors import BadInputError
from perfmodel.model import capacity, kernels
from perfmodel.schema.calibration import KernelFit
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import element_bytes
from perfmodel.units import parse_ratio

Of = Any  # a number for all tables or passes, or an array with one number for each

_LIMITS = {
    "gather_pool": ("launch_floor_s", "gather_bytes_per_s", "l2_bytes_per_s"),
    "bucketize": ("bucketize_floor_s", "bucketize_bytes_per_s"),
    "local_sum": ("launch_floor_s", "local_sum_bytes_per_s"),
}
"""Constants of the kernels: launch floor, rate, and of a gather the rate of the L2."""
_ROUNDING = 1e-3  # of bytes that were timed: as many count as inside them
_SORT_KEYS = ("sort_floor_s", "sort_memory_fraction")
_UNIQUE = ("hash", "torch_unique")  # ways to deduplicate ids: a hash table, and a sort as in ``torch.unique``


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
        """What a text says: ``host``, ``host-cached:10%``; ``hbm`` -> None. Limits: other texts -> error"""
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
        """Bytes of rows that one GPU can have in host memory (``capacity.compute_host_room``)."""
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
    numbers        values of the machine and constants of the software, by key;  steps  of a pass, in order
    fits           errors of the calibration's fits, by kernel; empty if constants are the machine file's
    exchanges      of bags that a row-wise pass may use; each configuration uses the fastest
    sent_element_bytes  v, bytes of an element of a bag on the wire
    room_bytes     memory of one GPU for rows, before the reserve: its HBM, or ``HostRows.room_bytes``
    buffer_weight  memory that a byte of an exchange buffer, which is in HBM, takes of that for rows [-]
    state          of the optimizer [bytes]: (per element, per row of a shard)
    """

    setting: Setting
    gpus_per_node: int | None = None
    payload: str | None = None
    training: bool = False
    optimizer: str = "none"
    rows: HostRows | None = field(default=None, kw_only=True)
    unpooled: bool = field(default=False, kw_only=True)

    numbers: Mapping[str, float] = field(init=False, repr=False)
    fits: Mapping[str, KernelFit] = field(init=False, repr=False)
    steps: tuple[Step, ...] = field(init=False, repr=False)
    exchanges: tuple[Exchange, ...] = field(init=False, repr=False)
    sent_element_bytes: float = field(init=False, repr=False)
    room_bytes: float = field(init=False, repr=False)
    buffer_weight: float = field(init=False, repr=False)
    state: tuple[float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compute the fields that follow from the others."""
        if self.optimizer not in OPTIMIZERS:
            raise unknown_name("optimizer", self.optimizer, OPTIMIZERS)
        machine, constants = self.setting.machine, self.setting.constants
        numbers = {key: quantity.value for key, quantity in {**constants, **machine.values}.items()}
        sent = numbers["pooled_element_bytes"]
        if self.payload is not None:
            sent = float(element_bytes(self.payload, "payload"))  # raises if unknown
        room = self.rows.room_bytes(machine) if self.rows else numbers["hbm_bytes"]
        per_element, per_row = OPTIMIZERS[self.optimizer]
        size = numbers["optimizer_state_bytes"]
        steps = (*FORWARD, *BACKWARD) if self.training else FORWARD
        facts: dict[str, Any] = {
            "numbers": numbers,
            "fits": self.setting.kernels.fits if self.setting.kernels else {},
            "steps": tuple(
                step
                for step in steps
                if (self.rows or not step.hosted) and (self.unpooled or step.name != PLACE_ROWS)
            ),
            "exchanges": list_exchanges(self.setting.backend),
            "sent_element_bytes": sent,
            "room_bytes": room,
            "buffer_weight": room / numbers["hbm_bytes"],
            "state": (size * per_element, size * per_row),
        }
        for name, fact in facts.items():
            object.__setattr__(self, name, fact)

    def get_kernel_factor(self, kernel: str) -> float:
        """Factor k of a kernel's 95 % band, [t / k, t k]: from its fit, else from published errors.

        Without a fit, ``time_kernel`` widens it by the spread of the machine's constants.
        """
        fit, z = self.fits.get(kernel), self.numbers["normal_quantile_95"]
        if fit is None:
            return kernels.compute_error_factor(self.numbers["mean_relative_error"], z)
        return float(np.exp(z * fit.log_sd))

    def domain(self, G: Array) -> Array:
        """g, the number of ranks (of G) in a scale-up domain or node, which need no network among them."""
        machine = self.setting.machine
        return np.minimum(G, machine.domain_gpus_of(self.gpus_per_node or machine.gpus_per_node))

    def time_kernel(
        self, kernel: str, moved: Array, l2: Array | None = None, launches: Array | float = 1.0
    ) -> Timing:
        """Time of a kernel with its band: a gather (``kernels.gather_pool_time``), or one that streams bytes.

        kernel  a key of ``_LIMITS``: the kernel whose constants are used
        moved   bytes that it moves, of a gather those that pass DRAM;  l2  of a gather, bytes that pass L2
        launches  number of kernels, each with its own launch floor
        Source of the band: the fit of the kernel; without one, published errors and the spread of the
        sources of its constants. No low end is faster than ``find_memory_limit``.
        Evidence: of a fit, what its samples determine, inside the bytes that were timed; else extrapolated,
        or as weak as the weakest constant
        """
        names = _LIMITS[kernel]
        fit = self.fits.get(kernel)
        quantity = self.setting.machine.values
        constants = [self.numbers[name] for name in names]
        floor_s, rate = constants[:2]
        parts = [moved / rate]
        if l2 is None:
            time = kernels.stream_kernel_time(moved, floor_s, rate, launches)
        else:
            time = kernels.gather_pool_time(moved, l2, floor_s, rate, constants[2], launches)
            parts.append(l2 / constants[2])
        floors = np.broadcast_to(np.asarray(floor_s * launches, dtype=np.float64), time.shape)
        k: Array | float = self.get_kernel_factor(kernel)
        keys = names if l2 is None else (*names, "row_access_bytes")  # on which the bytes of a gather depend
        ranks = [quantity[key].evidence.rank for key in keys]
        rank: Codes = constant(max(ranks), time.shape)
        if fit is None:
            sds = [quantity[name].log_sd or 0.0 for name in names]
            share, sd = floors / time, np.take(sds[1:], np.argmax(parts, axis=0))
            spread = np.hypot(share * sds[0], (1 - share) * sd)  # of floor and rate, by their shares of t
            k = kernels.widen_factor(k, spread, self.numbers["normal_quantile_95"])
        else:
            inside = np.isclose(moved, np.clip(moved, fit.low_bytes, fit.high_bytes), rtol=_ROUNDING)
            determined = [r for r, key in zip(ranks, keys, strict=True) if not self.setting.is_untold(key)]
            weakest = max([*determined, Evidence.INTERPOLATED.rank])
            rank = np.where(inside, weakest, np.maximum(rank, Evidence.EXTRAPOLATED.rank)).astype(np.int8)
        # The place in ``names`` of the constant that limits it: floor, rate of DRAM, or rate of the L2.
        limit = np.argmax([floors, *parts], axis=0).astype(np.int8)
        limit_s = moved / find_memory_limit(self.setting.machine)
        low = np.maximum(time / k, np.minimum(time, limit_s))  # a time by what-ifs may be below the limit
        library = np.zeros(time.shape, np.int8)
        return Timing(time, low, time * k, floors, rank, limit, names, library, (KERNEL_LIBRARY,))

    def time_cache(self, indices: Array) -> Timing:
        """Time to look up which rows in host memory are cached in HBM. indices  bytes of all their indices

        Source of the band: spread of the time per row
        """
        names, value = ("cache_floor_s", "cache_row_s"), self.numbers
        floor_s, rate = value[names[0]], value["cache_index_bytes"] / value[names[1]]
        k = self._factor(names[1])
        ends = ((1 / k * floor_s, rate * k), (floor_s, rate), (k * floor_s, rate / k))
        times = [kernels.stream_kernel_time(indices, floor, end) for floor, end in ends]
        return _build_timing(times, floor_s, names, Evidence.TRANSFERRED.rank)

    def time_link(self, wire: Array, packets: Array, gpus: Of) -> Timing:
        """Time to read rows over the link to the host.

        wire, packets  bytes of the link with and without the look-up of a page for each short row
        gpus  G, for each pass or for all
        Source of the band: spreads of the constants. If several GPUs of a node read at once, their links may
        share an uplink, unless they are coherent links of a CPU (C2C), faster than PCIe
        Limits: short rows -> the lower end has no look-ups of pages, the upper end more of them
        """
        value = self.numbers
        names = ("host_latency_s", "host_link_bytes_per_s", "link_packet_fraction", "link_row_bytes")
        floor_s, link = value[names[0]], self.setting.machine.value(names[1])
        rate, k = link * value[names[2]], self._factor(names[2])
        alone = (np.asarray(gpus) == 1) | (link > value["pcie_bytes_per_s"])
        shared = np.where(alone, 1.0, value["shared_uplink_fraction"])
        most = packets + (wire - packets) * self._factor(names[3])
        ends = ((packets, min(rate * k, link)), (wire, rate), (most, rate / k * shared))
        times = [kernels.stream_kernel_time(moved, floor_s, end) for moved, end in ends]
        rank = np.where(alone, Evidence.TRANSFERRED.rank, Evidence.ASSUMED.rank)
        return _build_timing(times, floor_s, names, rank)

    def _factor(self, key: str) -> float:
        """Factor k of a constant c of the software: its 95 % interval is [c / k, c k]. key  its name"""
        log_sd = self.setting.constants[key].log_sd or 0.0
        return float(np.exp(self.numbers["normal_quantile_95"] * log_sd))

    def list_sorts(self, digits: Of, *, alone: bool) -> list[tuple[Of, float]]:
        """(floor [s], rate [bytes/s]) of a deduplication of ids: for the low end, the time, the high end.

        digits  8-bit digits of an id in the sort of the backward pass
        alone   True: only that sort, FBGEMM's; False: our hash table or ``torch.unique``, as models use
                either. The time has the geometric means of the two
        """
        value = self.numbers
        memory = value["hbm_bytes_per_s"]
        if alone:
            floor = kernels.sort_floor(value["sort_floor_s"], value["sort_digit_s"], digits)
            wide, rate = self._factor("sort_digit_s"), memory * value["sort_memory_fraction"]
            ends = [(floor / wide, rate * wide), (floor * wide, rate / wide)]
        else:
            ends = [(value[f"{x}_floor_s"], memory * value[f"{x}_memory_fraction"]) for x in _UNIQUE]
        floors, rates = zip(*ends, strict=True)
        middle = np.sqrt(floors[0] * floors[1]), float(np.sqrt(rates[0] * rates[1]))
        return [(np.minimum(*floors), max(rates)), middle, (np.maximum(*floors), min(rates))]

    def time_sort(self, moved: Array, digits: Of, launches: Array | float = 1.0, *, alone: bool) -> Timing:
        """Time to deduplicate ids, with the ends of ``list_sorts`` as its band.

        moved  bytes, as ``exchanges.sort_bytes`` counts;  digits, alone  as in ``list_sorts``
        launches  number of sorts, each with its own launch floor
        """
        sorts = self.list_sorts(digits, alone=alone)
        times = [kernels.stream_kernel_time(moved, floor, rate, launches) for floor, rate in sorts]
        return _build_timing(times, sorts[1][0] * launches, _SORT_KEYS, Evidence.TRANSFERRED.rank)


def _build_timing(times: Sequence[Array], floor: Of, names: tuple[str, ...], rank: Of) -> Timing:
    """The ``Timing`` of a kernel from its low end, time and high end [s].

    floor  time without bytes [s];  names  of the constants of floor and rate;  rank  of the evidence
    """
    low, time, high = times
    floors = np.broadcast_to(np.asarray(floor, dtype=np.float64), time.shape)
    ranks = np.broadcast_to(np.asarray(rank, dtype=np.int8), time.shape)
    limit = np.argmax([floors, time - floors], axis=0).astype(np.int8)
    library = np.zeros(time.shape, np.int8)
    return Timing(time, low, high, floors, ranks, limit, names, library, (KERNEL_LIBRARY,))
