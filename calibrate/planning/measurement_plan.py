"""The measurements of a calibration here: every point, in one order, and what is left out, with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from calibrate.planning import payloads
from calibrate.planning.presets import Preset, find_preset
from calibrate.planning.selection import LOOK_UPS, WantedParts, read_selection
from calibrate.planning.world import World, shapes
from calibrate.running.stopping import Target
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import COLLECTIVES, Clock
from perfmodel.schema.files import unknown_name
from perfmodel.schema.runs import Point, PointKind

BACKENDS = ("nccl", "rccl", "nvshmem", "gloo")
"""Libraries of collectives that can be calibrated, in the order of a plan."""

DEFAULT_BACKENDS = {"cpu": ("gloo",), "cuda": ("nccl", "nvshmem")}
"""Libraries of a plan that names none, by device."""

_CARRIER = {"kernels": "torch", "composed": "exchange"}  # without it, nothing of the group works
MOST_A_CORE = 64
"""Most ranks per core or GPU of a node, even for a functional check."""


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
        preset = replace(preset, relative=request.noise)
    selection = read_selection(request.only, request.backends or (), BACKENDS)
    _check_world(request, world)
    choice = _Choice(request, selection, preset, world)
    unique = tuple({point.key: point for point in choice.points()}.values())
    if not unique:
        raise _nothing_left(choice.left_out)
    return MeasurementPlan(unique, tuple(dict.fromkeys(choice.left_out)), preset, world)


def refuse_turns(ranks: int, cores: int) -> None:
    """Raise BadInputError for more ranks on a node than it has cores."""
    if ranks > cores:
        raise BadInputError(
            f"{_many(ranks, 'rank')} on {_many(cores, 'core')} would take turns: their times say nothing.",
            f"use at most {_many(cores, 'rank')}, or --oversubscribe for a functional check.",
        )


def refuse_crowd(ranks: int, places: int, what: str) -> None:
    """Raise BadInputError for more ranks than a node can start even for a functional check.

    places  number of cores or GPUs of the node;  what  "core" or "GPU", for the message
    """
    if ranks > MOST_A_CORE * max(places, 1):
        most = MOST_A_CORE * max(places, 1)
        raise BadInputError(
            f"--ranks {ranks}: that many cannot be started on {_many(places, what)}.",
            f"for times use at most {_many(max(places, 1), 'rank')}, one a {what}; "
            f"not even a functional check starts more than {most}.",
        )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _check_world(request: Request, world: World) -> None:
    if world.device == "cpu" and world.cores_per_node and not request.oversubscribe:
        refuse_turns(world.ranks_per_node, world.cores_per_node)
    if world.ranks > 1 and request.ranks and set(request.ranks) == {1}:
        raise BadInputError(
            f"--ranks 1: this job has {world.ranks} ranks, and kernels run on all of them at once.",
            f"start one rank, or give counts from 2 to {world.ranks}.",
        )
    for count in request.ranks or ():
        if not 1 <= count <= world.ranks:
            raise BadInputError(
                f"--ranks {count}: this job has {_many(world.ranks, 'rank')}.",
                f"give counts from 2 to {world.ranks}." if world.ranks > 1 else "start more ranks.",
            )
        if count > 1 and not shapes(world, "rigorous", [count]):
            raise BadInputError(
                f"--ranks {count} cannot be spread evenly over nodes of {world.ranks_per_node} ranks.",
                "give a count that fits one node, or the same number of ranks on each node.",
            )


def _instead(world: World) -> str:
    """Libraries of collectives that work here, in words. Limits: none -> ``calibrate --plan-only``"""
    names = [name for name in BACKENDS if not _why_not(world, name)]
    return (
        f"these work here: {', '.join(names)}."
        if names
        else "perfmodel calibrate --plan-only says what is missing."
    )


def _why_not(world: World, name: str, what: str = "") -> NotMeasured | None:
    """Why provider ``name`` cannot be measured; None if it can. what  is left out then; "": the provider"""
    availability, name = world.providers.get(name), what or name
    if availability is None:
        return NotMeasured(name, "this team does not offer it")
    if not availability.usable:
        return NotMeasured(name, availability.why_not or "it does not run here", availability.install)
    if availability.functional_only:
        why = f"its times are not a calibration: {availability.functional_only}"
        return NotMeasured(name, why, availability.install)
    return None


@dataclass
class _Choice:
    """What of ``request`` is measured in ``world``; what cannot be is added to ``left_out``.

    backends  names of the libraries whose collectives are planned
    """

    request: Request
    selection: WantedParts
    preset: Preset
    world: World
    left_out: list[NotMeasured] = field(default_factory=list)
    backends: list[str] = field(default_factory=list)

    def points(self) -> Iterator[Point]:
        """Every point: collectives, then kernels and whole passes."""
        look_ups = bool(self.request.grid) or any(group == "passes" for group, _ in self.selection.pairs)
        if self.world.ranks > 1 and 1 in (self.request.ranks or ()) and not look_ups:
            why = "a single rank exchanges nothing; --ranks 1 alone times kernels"
            self.left_out.append(NotMeasured("1 rank", why))
        self.backends = self._usable()
        for backend in filter(self.selection.wants_group, self.backends):
            yield from self._collectives(backend)
        yield from self._grids()
        if look_ups:
            yield from self._look_ups()

    def _usable(self) -> list[str]:
        """Names of the libraries whose collectives are planned; adds unusable ones to ``left_out``.

        Limits: a library that the user named cannot run here -> NoHardwareError; no library for one rank
        """
        named = list(dict.fromkeys([*(self.request.backends or ()), *self.selection.backends]))
        if named:
            for name in named:
                if name not in BACKENDS:
                    raise unknown_name("backend", name, BACKENDS)
                why = _why_not(self.world, name)
                if why and self.world.ranks > 1:
                    raise NoHardwareError(
                        f"{name} cannot be calibrated here: {why.why}.", why.install or _instead(self.world)
                    )
            wanted = named
        else:
            amd = _why_not(self.world, "rccl") is None
            wanted = ["rccl"] if amd else list(DEFAULT_BACKENDS[self.world.device])
        if self.world.ranks == 1:
            self.left_out.append(NotMeasured("collectives", "one rank exchanges nothing"))
            return []
        usable: list[str] = []
        for name in wanted:
            why = _why_not(self.world, name)
            if why and (self.selection.wants_group(name) or self.selection.wants_group("composed")):
                self.left_out.append(why)
            elif not why:
                usable.append(name)
        return [name for name in BACKENDS if name in usable]

    def _collectives(self, backend: str) -> Iterator[Point]:
        offered, clocks = self.world.providers[backend], self._clocks(backend)
        for operation in COLLECTIVES:
            if not self.selection.wants(backend, operation):
                continue
            if operation not in offered.operations:
                why = "the library has no such operation here"
                self.left_out.append(NotMeasured(f"{backend} {operation}", why))
                continue
            for nodes, per_node in shapes(self.world, self.preset.name, self.request.ranks):
                yield from self._cell(backend, operation, nodes, per_node, clocks)

    def _cell(
        self, backend: str, operation: str, nodes: int, per_node: int, clocks: Sequence[Clock]
    ) -> Iterator[Point]:
        """Points of one collective of one library on one group of ranks: every size on every clock.

        On one node of CPUs, all-to-all and reduce-scatter add some sizes that are timed right after a kernel.
        """
        preset, world, ranks = self.preset, self.world, nodes * per_node
        grid = payloads.payloads(backend, operation, ranks, preset, world, self.request.sizes)
        variants = [(clock, "default", grid) for clock in clocks]
        follows = operation in ("all_to_all", "reduce_scatter") and nodes == 1
        if follows and world.device == "cpu" and Clock.EAGER in clocks:
            sizes = payloads.spread(grid, preset.after_kernel_sizes)
            variants.append((Clock.EAGER, "after_kernel", sizes))
        for clock, variant, sizes in variants:
            for payload_bytes in sizes:
                yield Point(
                    kind=PointKind.COLLECTIVE,
                    operation=operation,
                    backend=backend,
                    clock=clock,
                    variant=variant,
                    payload_bytes=payload_bytes,
                    gpus=ranks,
                    nodes=nodes,
                    gpus_per_node=per_node,
                )

    def _clocks(self, backend: str) -> list[Clock]:
        asked, offered = self.request.clocks, self.world.providers[backend].clocks
        wanted = self.preset.clocks[self.world.device] if asked is None else asked
        if asked is not None:
            self.left_out += [
                NotMeasured(f"{backend} on the {clock} clock", "the library does not offer it here")
                for clock in wanted
                if clock not in offered
            ]
        return [clock for clock in wanted if clock in offered]

    def _grids(self) -> list[Point]:
        """Requested points of kernels and whole passes; ``left_out`` gets what cannot run."""
        from calibrate.planning.kernel_cells import kernel_points
        from calibrate.planning.pass_cells import composed_points

        request, selection, world = self.request, self.selection, self.world
        makers = {"kernels": kernel_points, "composed": composed_points}
        grids = {
            group: made(world, request.preset)
            for group, made in makers.items()
            if selection.wants_group(group) and (group != "composed" or world.ranks > 1)
        }
        for group, grid in grids.items():
            made = {point.implementation for point in grid}
            named = [name for kind, name in selection.pairs if kind == group and name in world.providers]
            for carrier in [one for one in named or [_CARRIER[group]] if one not in made]:
                why = _why_not(world, carrier, "" if named else group)
                self.left_out += [why] if why else []
        points: list[Point] = []
        for group, grid in grids.items():
            for point in grid:
                name = point.implementation if group == "composed" else point.operation
                wanted_clock = request.clocks is None or point.clock in request.clocks
                if not selection.wants(group, name) or not wanted_clock:
                    continue
                if group == "composed" and not self._composed_here(point):
                    continue
                why = _why_not(world, point.implementation)
                if why:
                    self.left_out.append(why)
                else:
                    points.append(point)
        return points

    def _look_ups(self) -> Iterator[Point]:
        """The paper's look-ups by every implementation that can run; ``left_out`` gets the others.

        Limits: an implementation that the user named cannot run here -> NoHardwareError
        """
        from calibrate.planning.pass_cells import PAPER_GPUS, PROVIDER_OF, carrier, fits, paper_points

        request, world = self.request, self.world
        for name in LOOK_UPS:
            if not (request.grid and not self.selection.pairs) and not self.selection.wants("passes", name):
                continue
            needed = filter(None, (PROVIDER_OF.get(name, name), carrier(world, name)))
            whys = [why for each in needed if (why := self._why_not(each, f"passes:{name}"))]
            if whys and ("passes", name) in self.selection.pairs:
                raise NoHardwareError(f"passes:{name} cannot be timed here: {whys[0].why}.", whys[0].install)
            self.left_out += whys[:1]
            if whys:
                continue
            points = paper_points(world, name, tenth=request.preset == "quick" or not request.grid)
            for gpus in PAPER_GPUS:
                if not fits(gpus, world, name) and gpus in (request.ranks or PAPER_GPUS):
                    ranks = f"the grid has {gpus} GPUs, this job {world.ranks} ranks"
                    self.left_out.append(NotMeasured(f"passes:{name} on {gpus}", ranks))
            yield from (
                point
                for point in points
                if (not request.ranks or point.gpus in request.ranks)
                and (request.clocks is None or point.clock in request.clocks)
            )

    def _why_not(self, name: str, what: str) -> NotMeasured | None:
        """As the function of that name; ranks that share a GPU may make a functional check, if asked to."""
        why, provider = _why_not(self.world, name, what), self.world.providers.get(name)
        shared = provider is not None and provider.usable and bool(provider.functional_only)
        return None if shared and self.request.oversubscribe else why

    def _composed_here(self, point: Point) -> bool:
        """Whether this pass is requested: over a library of the plan; over any if the user named the pass."""
        named = not self.request.backends and ("composed", point.implementation) in self.selection.pairs
        usable = self.world.runs(point.backend) and not self.world.providers[point.backend].functional_only
        return (point.backend in self.backends or (named and usable)) and (
            not self.request.ranks or point.gpus in self.request.ranks
        )


def _nothing_left(left_out: Sequence[NotMeasured]) -> NoHardwareError:
    reasons = "; ".join(f"{item.what}: {item.why}" for item in dict.fromkeys(left_out))
    install = "\n".join(dict.fromkeys(item.install for item in left_out if item.install))
    return NoHardwareError(
        f"nothing can be measured here{f' ({reasons})' if reasons else ''}.",
        install or "docs/tutorial.md says what to install.",
    )
