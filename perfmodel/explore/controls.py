"""The controls of the page: options of ``perfmodel project``, and values of the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.engine.schemes import DATA_PARALLEL, WAYS
from perfmodel.errors import PerfmodelError
from perfmodel.question.groups import DEFAULT_MACHINE, OBJECTIVES
from perfmodel.question.passes import ProjectOptions
from perfmodel.question.spec import Opt
from perfmodel.schema.evidence import LAW_BACKENDS
from perfmodel.schema.machine import KEYS, list_machines
from perfmodel.schema.table_files import list_models
from perfmodel.schema.workload import DTYPE_BYTES, ONE_ROW, PAYLOADS

OPTIONS = {each.name: each for each in ProjectOptions.declared()}
_TENTHS = ("1", "1.25", "1.6", "2", "2.5", "3.2", "4", "5", "6.3", "8")


@dataclass(frozen=True)
class Control:
    """A control of the page, which sets one option of a question.

    rest   the value that applies while the control is empty, or words for it
    words  texts to choose from, in a list or as the stops of a slider
    only   whether no other text is allowed; otherwise any may be typed beside the slider
    """

    name: str
    label: str
    group: str
    rest: str
    words: tuple[str, ...]
    only: bool

    @property
    def help(self) -> str:
        """The explanation of the control, from the command line or the machine's files if they have it."""
        if self.name in OPTIONS and isinstance(words := OPTIONS[self.name].words, Opt):
            return words.help
        return KEYS[self.name].meaning


def _decades(units: str, first: str, last: str) -> tuple[str, ...]:
    """``10GB``, ``12.5GB`` … ``100TB``: ten values per decade; each of the ``units`` is for three decades."""
    every = [
        f"{float(step) * 10**power:g}{unit}"
        for unit in units.split()
        for power in range(3)
        for step in _TENTHS
    ]
    return tuple(every[every.index(first) : every.index(last) + 1])


def _doubled(first: int, last: int) -> tuple[str, ...]:
    """The powers of two from ``first`` to ``last``, and 1.5 times each, as texts."""
    powers = [first << at for at in range((last // first).bit_length())]
    halves = [3 * each // 2 for each in powers[:-1] if each > 1]
    return tuple(map(str, sorted([*powers, *halves])))


_RATES = _decades("GB/s", "10GB/s", "800GB/s")
_IDS = (*(f"zipf:{at / 20:g}" for at in range(10, 31)), ONE_ROW.name)
_HBM = ("40GB", "64GB", "80GB", "96GB", "141GB", "192GB", "288GB", "384GB")
_RUN = tuple(name for name, way in WAYS.items() if way.runs and name != DATA_PARALLEL)
_OWN = "the machine's"
_GROUPS: dict[str, tuple[tuple[str, str, str, tuple[str, ...], bool], ...]] = {
    "Tables": (
        ("model", "a set of tables", "equal tables", tuple(list_models()), True),
        ("table_size", "all tables", "", _decades("GB TB", "10GB", "100TB"), False),
        ("tables", "how many", "1", _doubled(1, 1024), False),
        ("dim", "dim", "32", _doubled(4, 1024), False),
        ("pooling", "pooling", "32", _doubled(1, 512), False),
        ("dtype", "type of a row", "fp32", tuple(DTYPE_BYTES), True),
        ("distribution", "ids", "uniform", _IDS, True),
    ),
    "Batch and GPUs": (
        ("gpus", "GPUs", "as needed", _doubled(2, 8192), False),
        ("batch", "batch of each GPU", "1024", _doubled(64, 65536), False),
        ("global_batch", "batch of all", "of each", _doubled(1024, 2**22), False),
        ("objective", "pass", "forward", OBJECTIVES[1:], True),
        ("sharding", "sharding", "the fastest of TorchRec's", _RUN, True),
        ("payload", "bags travel as", "fp32", PAYLOADS, True),
    ),
    "Machine": (
        ("machine", "machine", DEFAULT_MACHINE, tuple(list_machines()), True),
        ("backend", "library", _OWN, (*map(str, LAW_BACKENDS), "best"), True),
        ("nic_bytes_per_s", "network per GPU", _OWN, _RATES, False),
        ("nvlink_bytes_per_s", "NVLink per GPU", _OWN, _decades("GB/s TB/s", "50GB/s", "4TB/s"), False),
        ("nvlink_domain_gpus", "NVLink domain", _OWN, _doubled(1, 1024), False),
        ("hbm_bytes", "HBM", _OWN, _HBM, False),
        ("hbm_bytes_per_s", "HBM rate", _OWN, _decades("TB/s", "1TB/s", "20TB/s"), False),
    ),
}
"""By group of controls: name, label, value or words if empty, texts to choose, whether only these."""


_SAID = re.compile(r"--set ([a-z_]+)|--([a-z]+(?:-[a-z]+)*)")


def refused(error: PerfmodelError, known: Mapping[str, Control]) -> dict[str, object]:
    """The error as JSON: in the page's words, and the names of the controls that it is about.

    A control stands for the option that sets it; a line with a command of this program stays as it is.
    """
    flags = {name: option.flag.removeprefix("--set ") for name, option in OPTIONS.items()}
    named = {flags.get(name, name): each for name, each in known.items()}

    def control(found: re.Match[str]) -> Control | None:
        return named.get(found[1] or found[0])

    def words(found: re.Match[str]) -> str:
        each = control(found)
        return found[0] if each is None else f"\u201c{each.label}\u201d"

    lines = [line if "perfmodel " in line else _SAID.sub(words, line) for line in str(error).splitlines()]
    about = {
        each.name for found in _SAID.finditer(f"{error.where} {error.message}") if (each := control(found))
    }
    return {"error": "\n".join(lines), "wrong": sorted(about)}


def controls(model: str | None, machine: str | None) -> dict[str, Control]:
    """All controls, by name.

    model, machine  names or files from the command line, which are added to the choices
    """
    own = {"model": model, "machine": machine}
    found = {}
    for group, rows in _GROUPS.items():
        for name, label, rest, words, only in rows:
            more = (str(own[name]),) if own.get(name) and own[name] not in words else ()
            said = (*([""] if rest and (only or rest not in words) else []), *words, *more)
            found[name] = Control(name, label, group, rest, said, only)
    return found
