"""The measurements of a calibration here: every point, in one order, and what is left out, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from calibrate.patterns import ELEMENT_BYTES
from calibrate.planning import pass_cells
from calibrate.planning.kernel_cells import list_kernel_points
from calibrate.planning.presets import Preset, find_preset
from calibrate.planning.world import World, list_shapes
from calibrate.running.stopping import Target
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER, Clock
from perfmodel.schema.files import unknown_name
from perfmodel.schema.runs import KERNELS, Point, PointKind
from perfmodel.units import counted, format_bytes

BACKENDS = ("nccl", "rccl", "nvshmem", "gloo")
"""Libraries of collectives that can be calibrated, in the order of a plan."""

DEFAULT_BACKENDS = {"cpu": ("gloo",), "cuda": ("nccl", "nvshmem")}
"""Libraries of a plan that names none, by device."""

GROUPS = {"kernels": KERNELS, "composed": ("exchange", "torchrec"), "passes": pass_cells.LOOK_UPS}
"""What ``--only`` names besides libraries: kernels, whole passes of the model, the paper's look-ups."""

_CARRIER = {"kernels": "torch", "composed": "exchange"}  # without it, nothing of the group works
MOST_A_CORE = 64
"""Most ranks per core or GPU of a node, even for a functional check."""

SMALLEST_BYTES = 128
SIZE_STEP = 2
"""Ratio of successive payloads in a plan, small enough to show where protocols change."""
ALIGNMENT_BYTES = {"nccl": 16, "rccl": 16, "nvshmem": 16}
"""Bytes per peer below which a library sends nothing, or refuses."""

_BUFFERS = 8  # buffers of the payload's size per operation: sent, received, expected, rotated


@dataclass(frozen=True)
class Request:
    """The measurements that the user asks for.

    only         parts: "nccl", "nccl:all_to_all", "kernels", "kernels:gather_pool", "composed", "passes"
    ranks        rank counts of the collectives; None: the preset's steps up to the world
    sizes        payloads in bytes; None: 128 B up to the limit of preset and memory
    clocks       ways of timing; None: the preset's for the device
    backends     libraries; None: the preset's for the device
    oversubscribe  whether more CPU ranks than cores are allowed (their times say nothing about the hardware)
    grid         "paper": all points of the paper's grids; without it, a tenth of them if passes are named
    noise        target half-width of the 95 % interval, as a share of the time, below 1; None: the preset's
    """

    preset: str = "standard"
    only: Sequence[str] = ()
    ranks: Sequence[int] | None = None
    sizes: Sequence[int] | None = None
    clocks: Sequence[Clock] | None = None
    backends: Sequence[str] | None = None
    oversubscribe: bool = False
    noise: float | None = None
    grid: str = ""

    def list_backends(self) -> list[str]:
        """Libraries that the user names. Limits: an unknown name -> BadInputError"""
        named = [group for group, _ in self.select() if group not in GROUPS]
        for name in self.backends or ():
            if name not in BACKENDS:
                raise unknown_name("backend", name, BACKENDS)
        return list(dict.fromkeys([*(self.backends or ()), *named]))

    def select(self) -> list[tuple[str, str]]:
        """The pairs (group, name) of ``only``, each text of which may contain several; name "": all of it.

        Limits: "" or nothing -> no pairs, which is everything; an unknown group or name, a colon without a
        name, a library that ``backends`` excludes -> BadInputError
        """
        pairs = []
        for text in (word.strip() for texts in self.only for word in texts.split(",") if word.strip()):
            group, colon, name = text.replace("-", "_").partition(":")
            group = group.strip()
            name = name.strip()
            if group not in (*GROUPS, *BACKENDS):
                raise unknown_name("--only", group, [*GROUPS, *BACKENDS])
            names = GROUPS.get(group, COLLECTIVES)
            if colon and not name:
                raise BadInputError(
                    f"--only {group}: names nothing after the colon.",
                    f"write --only {group} for all of it, or one of {', '.join(names)}.",
                )
            if name and name not in names:
                raise unknown_name(f"--only {group}:", name, names)
            if self.backends and group in BACKENDS and group not in self.backends:
                raise BadInputError(
                    f"--only {group} and --backend {', '.join(self.backends)} cannot be combined.",
                    "give one of the two.",
                )
            pairs.append((group, name))
        return pairs


@dataclass(frozen=True)
class NotMeasured:
    """Something that the plan lacks, although it was requested or is usual.

    what     name of it;  why  the reason;  install  a command that installs what is missing, or ""
    """

    what: str
    why: str
    install: str = ""


@dataclass(frozen=True)
class MeasurementPlan:
    """The points to measure, and what is left out. The order is fixed; a run shuffles the points itself."""

    points: tuple[Point, ...]
    left_out: tuple[NotMeasured, ...]
    preset: Preset
    world: World

    @property
    def target(self) -> Target:
        """When a point of this plan ends: the precision to reach, and the most time."""
        return self.preset.target

    @cached_property
    def by_key(self) -> dict[str, Point]:
        """The points of the plan, by their key."""
        return {point.key: point for point in self.points}


def make_plan(request: Request, world: World) -> MeasurementPlan:
    """All points of ``request`` that ``world`` can measure.

    Raises BadInputError for an unknown name, rank count or size; NoHardwareError if something requested by
    name cannot run here, or nothing is left to measure.
    Limits: equal arguments -> equal plans; one rank -> kernels only
    """
    preset = find_preset(request.preset)
    if request.noise is not None:
        preset = replace(preset, target=replace(preset.target, relative=request.noise))
    choice = _Choice(request, request.select(), preset, world)
    _check_ranks(request, world)
    points = tuple({point.key: point for point in choice.list_points()}.values())
    left_out = tuple(dict.fromkeys(choice.left_out))
    if not points:
        reasons = "; ".join(f"{gap.what}: {gap.why}" for gap in left_out)
        install = "\n".join(dict.fromkeys(gap.install for gap in left_out if gap.install))
        raise NoHardwareError(
            f"nothing can be measured here{f' ({reasons})' if reasons else ''}.",
            install or "docs/tutorial.md says what to install.",
        )
    return MeasurementPlan(points, left_out, preset, world)


def refuse_turns(ranks: int, places: int, what: str = "core", *, oversubscribe: bool = False) -> None:
    """Raise BadInputError for more ranks on a node than it has cores, or GPUs.

    what           "core" or "GPU", for the message
    oversubscribe  a functional check starts more, up to MOST_A_CORE each
    """
    limit = max(places, 1) * (MOST_A_CORE if oversubscribe else 1)
    if ranks > limit:
        hint = "" if oversubscribe else ", or --oversubscribe for a functional check"
        raise BadInputError(
            f"{counted(ranks, 'rank')} on {counted(places, what)} would take turns: their times say nothing.",
            f"use at most {counted(limit, 'rank')}{hint}.",
        )


def _check_ranks(request: Request, world: World) -> None:
    """Raise BadInputError for rank counts that this job cannot time: too many, or uneven over its nodes."""
    if world.device == "cpu" and world.cores_per_node and not request.oversubscribe:
        refuse_turns(world.ranks_per_node, world.cores_per_node)
    if world.ranks > 1 and request.ranks and set(request.ranks) == {1}:
        raise BadInputError(
            f"--ranks 1: this job has {world.ranks} ranks, and kernels run on all of them at once.",
            f"start one rank, or give counts from 2 to {world.ranks}.",
        )
    even = [nodes * ranks for nodes, ranks in list_shapes(world, "standard", request.ranks)]
    for count in request.ranks or ():
        if not 1 <= count <= world.ranks:
            raise BadInputError(
                f"--ranks {count}: this job has {counted(world.ranks, 'rank')}.",
                f"give counts from 2 to {world.ranks}." if world.ranks > 1 else "start more ranks.",
            )
        if count not in (1, *even):
            raise BadInputError(
                f"--ranks {count} cannot be spread evenly over nodes of {world.ranks_per_node} ranks.",
                "give a count that fits one node, or the same number of ranks on each node.",
            )


@dataclass
class _Choice:
    """What of ``request`` is measured in ``world``; what cannot be is added to ``left_out``.

    pairs     the request's pairs (group, name);  backends  libraries whose collectives are planned
    """

    request: Request
    pairs: list[tuple[str, str]]
    preset: Preset
    world: World
    left_out: list[NotMeasured] = field(default_factory=list)
    backends: list[str] = field(default_factory=list)

    def list_points(self) -> Iterator[Point]:
        """Every point: collectives, kernels, whole passes, and where they are named the paper's look-ups."""
        look_ups = bool(self.request.grid) or "passes" in self._groups()
        if self.world.ranks > 1 and 1 in (self.request.ranks or ()) and not look_ups:
            why = "a single rank exchanges nothing; --ranks 1 alone times kernels"
            self.left_out.append(NotMeasured("1 rank", why))
        self.backends = self._choose_backends()
        for backend in filter(self._wants_group, self.backends):
            for operation in COLLECTIVES:
                if self._wants(backend, operation):
                    yield from self._list_collectives(backend, operation)
        yield from self._list_grid("kernels", list_kernel_points)
        if self.world.ranks > 1:
            yield from self._list_grid("composed", pass_cells.list_model_passes)
        if look_ups:
            for name in pass_cells.LOOK_UPS:
                if self._wants("passes", name):
                    yield from self._list_look_ups(name)

    def _groups(self) -> set[str]:
        """First words of ``--only``: libraries, and keys of GROUPS; empty if the user chose nothing."""
        return {group for group, _ in self.pairs}

    def _wants_group(self, group: str) -> bool:
        """Whether ``--only`` names the group or something of it, or is not given."""
        return not self.pairs or group in self._groups()

    def _wants(self, group: str, name: str) -> bool:
        """Whether ``--only`` names ``group:name`` or all of the group, or is not given."""
        return not self.pairs or (group, "") in self.pairs or (group, name) in self.pairs

    def _explain(self, name: str, subject: str = "") -> NotMeasured | None:
        """Why provider ``name`` cannot be measured; None if it can. subject  is left out then, or name"""
        offered = self.world.providers.get(name)
        subject = subject or name
        if offered is None:
            return NotMeasured(subject, "this team does not offer it")
        if not offered.usable:
            return NotMeasured(subject, offered.why_not or "it does not run here", offered.install)
        if offered.functional_only:
            why = f"its times are not a calibration: {offered.functional_only}"
            return NotMeasured(subject, why, offered.install)
        return None

    def _choose_backends(self) -> list[str]:
        """Names of the libraries whose collectives are planned; adds unusable ones to ``left_out``.

        Limits: a library that the user named cannot run here -> NoHardwareError; no library for one rank
        """
        named = self.request.list_backends()
        amd = self._explain("rccl") is None
        wanted = named or (["rccl"] if amd else DEFAULT_BACKENDS[self.world.device])
        reasons = {name: why for name in wanted if (why := self._explain(name))}
        if self.world.ranks == 1:
            self.left_out.append(NotMeasured("collectives", "one rank exchanges nothing"))
            return []
        for name, why in reasons.items():
            if named:
                instead = [library for library in BACKENDS if not self._explain(library)]
                step = "perfmodel calibrate --plan-only says what is missing."
                step = f"these work here: {', '.join(instead)}." if instead else step
                raise NoHardwareError(f"{name} cannot be calibrated here: {why.why}.", why.install or step)
            if self._wants_group(name) or self._wants_group("composed"):
                self.left_out.append(why)
        return [name for name in BACKENDS if name in wanted and name not in reasons]

    def _list_collectives(self, backend: str, operation: str) -> Iterator[Point]:
        """Points of one collective of one library: every group of ranks, every clock, every size."""
        offered = self.world.providers[backend]
        wanted = self.request.clocks
        if operation not in offered.operations:
            why = "the library has no such operation here"
            self.left_out.append(NotMeasured(f"{backend} {operation}", why))
            return
        for clock in wanted or ():
            if clock not in offered.clocks:
                why = "the library does not offer it here"
                self.left_out.append(NotMeasured(f"{backend} on the {clock} clock", why))
        clocks = [c for c in wanted or self.preset.clocks[self.world.device] if c in offered.clocks]
        for nodes, per_node in list_shapes(self.world, self.preset.name, self.request.ranks):
            ranks = nodes * per_node
            sizes = self._list_payloads(backend, operation, ranks)
            for clock in clocks:
                for payload_bytes in sizes:
                    yield Point(
                        kind=PointKind.COLLECTIVE,
                        operation=operation,
                        backend=backend,
                        clock=clock,
                        payload_bytes=payload_bytes,
                        gpus=ranks,
                        nodes=nodes,
                        gpus_per_node=per_node,
                    )

    def _list_payloads(self, backend: str, operation: str, ranks: int) -> list[int]:
        """Payload sizes [bytes], increasing: the requested ones, else up to the limits of preset and memory.

        Sizes are rounded down so that every peer gets whole, aligned elements.
        Limits: below one of them -> BadInputError with the smallest size; above the memory -> BadInputError
        """
        aligned = ALIGNMENT_BYTES.get(backend, ELEMENT_BYTES)
        unit = aligned * ranks if operation in PER_PEER else aligned  # payloads are multiples of it
        limit = int(self.world.memory_bytes / _BUFFERS)
        if self.request.sizes is None:
            limit = min(limit, self.preset.most_bytes[self.world.device])
            sizes = [SMALLEST_BYTES * SIZE_STEP**k for k in range(64)]
            return sorted({max(size // unit, 1) * unit for size in sizes if size <= limit})
        for size_bytes in self.request.sizes:
            if size_bytes < unit:
                below = f"one element of {aligned} B"
                if backend in ALIGNMENT_BYTES:
                    below = f"{backend.upper()}'s {aligned} B alignment"
                peers = (
                    f" over {ranks} ranks is {size_bytes // ranks} B per peer," if unit > aligned else " is"
                )
                raise BadInputError(
                    f"--sizes: {size_bytes} B{peers} below {below}: {operation} would time an empty call.",
                    f"the smallest size here is {unit} B.",
                )
            if size_bytes > limit:
                need = f"about {_BUFFERS} buffers of that size on each rank"
                raise BadInputError(
                    f"--sizes: {format_bytes(size_bytes)} needs {need}.",
                    f"the largest size here is {format_bytes(limit)}.",
                )
        return sorted({size_bytes // unit * unit for size_bytes in self.request.sizes})

    def _list_grid(self, group: str, make: Callable[[World, str], Iterable[Point]]) -> Iterator[Point]:
        """Requested points of ``group``: kernels, or composed (passes). ``left_out`` gets what cannot run.

        make  function that lists all points of the group for a world and the name of a preset
        """
        if not self._wants_group(group):
            return
        points = list(make(self.world, self.preset.name))
        implementations = {point.implementation for point in points}
        named = [name for kind, name in self.pairs if kind == group and name in self.world.providers]
        for carrier in [name for name in named or [_CARRIER[group]] if name not in implementations]:
            why = self._explain(carrier, "" if named else group)  # no point is of it: say what it lacks
            self.left_out += [why] if why else []
        for point in points:
            name = point.implementation if group == "composed" else point.operation
            timed = not self.request.clocks or point.clock in self.request.clocks
            if timed and self._wants(group, name) and (group == "kernels" or self._is_carried(point)):
                why = self._explain(point.implementation)
                if why:
                    self.left_out.append(why)
                else:
                    yield point

    def _is_carried(self, point: Point) -> bool:
        """Whether this pass is timed: over a library of the plan, or any, if the user named the pass."""
        named = not self.request.backends and ("composed", point.implementation) in self.pairs
        carried = point.backend in self.backends or (named and self._explain(point.backend) is None)
        return carried and (not self.request.ranks or point.gpus in self.request.ranks)

    def _list_look_ups(self, name: str) -> Iterator[Point]:
        """The paper's look-ups by one implementation; ``left_out`` gets what does not fit or cannot run.

        Limits: an implementation that the user named cannot run here -> NoHardwareError
        """
        request = self.request
        world = self.world
        carrier = pass_cells.name_carrier(world, name)
        for provider in filter(None, (pass_cells.PROVIDER_OF.get(name, name), carrier)):
            why = self._explain(provider, f"passes:{name}")
            offered = world.providers.get(provider)
            if offered and offered.usable and request.oversubscribe:
                why = None  # ranks that share a GPU: a functional check
            if why and ("passes", name) in self.pairs:
                raise NoHardwareError(f"passes:{name} cannot be timed here: {why.why}.", why.install)
            if why:
                self.left_out.append(why)
                return
        for gpus in pass_cells.PAPER_GPUS:
            if gpus not in (request.ranks or pass_cells.PAPER_GPUS):
                continue
            if not pass_cells.fits(gpus, world, name):
                why_not = f"the grid has {gpus} GPUs, this job {world.ranks} ranks"
                self.left_out.append(NotMeasured(f"passes:{name} on {gpus}", why_not))
        tenth = self.preset.name == "quick" or not request.grid
        for point in pass_cells.list_paper_points(world, name, tenth=tenth):
            ranked = not request.ranks or point.gpus in request.ranks
            if ranked and (not request.clocks or point.clock in request.clocks):
                yield point
