"""The controls of the page: options of ``perfmodel project``, and values of the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from perfmodel.engine.schemes import DATA_PARALLEL, WAYS
from perfmodel.errors import PerfmodelError
from perfmodel.question.groups import DEFAULT_MACHINE, OBJECTIVES
from perfmodel.question.passes import ProjectOptions
from perfmodel.question.spec import Opt
from perfmodel.schema.evidence import LAW_BACKENDS
from perfmodel.schema.machine import KEYS, list_machines
from perfmodel.schema.table_files import list_models
from perfmodel.schema.workload import DTYPE_BYTES, ONE_ROW, PAYLOADS

OPTIONS = {option.name: option for option in ProjectOptions.declared()}
PRICE = "price"  # an option of sweep alone
_TENTHS = ("1", "1.25", "1.6", "2", "2.5", "3.2", "4", "5", "6.3", "8")


@dataclass(frozen=True)
class Control:
    """A control of the page, which sets one option of a question.

    empty  the value that applies while the control is empty, or words for it
    words  texts to choose from, in a list or as the stops of a slider
    only   whether no other text is allowed; otherwise any may be typed beside the slider
    """

    name: str
    label: str
    group: str
    empty: str
    words: tuple[str, ...]
    only: bool

    @property
    def help(self) -> str:
        """The explanation of the control, from the command line or the machine's files if they have it."""
        if self.name in OPTIONS and isinstance(words := OPTIONS[self.name].words, Opt):
            return words.help
        return KEYS[self.name].meaning if self.name in KEYS else "What 10⁹ samples cost follows from it."


def _list_decades(units: str, first: str, last: str) -> tuple[str, ...]:
    """``10GB``, ``12.5GB`` … ``100TB``: ten values per decade; each of the ``units`` is for three decades."""
    steps = product(units.split(), range(3), _TENTHS)
    texts = [f"{float(step) * 10**power:g}{unit}" for unit, power, step in steps]
    return tuple(texts[texts.index(first) : texts.index(last) + 1])


def _list_doubled(first: int, last: int) -> tuple[str, ...]:
    """The powers of two from ``first`` to ``last``, and 1.5 times each, as texts."""
    powers = [first << number for number in range((last // first).bit_length())]
    halves = [3 * power // 2 for power in powers[:-1] if power > 1]
    return tuple(map(str, sorted([*powers, *halves])))


_RATES = _list_decades("GB/s", "10GB/s", "800GB/s")
_IDS = (*(f"zipf:{number / 20:g}" for number in range(10, 31)), ONE_ROW.name)
_HBM = ("40GB", "64GB", "80GB", "96GB", "141GB", "192GB", "288GB", "384GB")
_RUN = tuple(name for name, way in WAYS.items() if way.runs and name != DATA_PARALLEL)
_PRICES = tuple(f"{number / 4:g}USD/GPU/h" for number in range(2, 41))
_OWN = "the machine's"
_GROUPS: dict[str, tuple[tuple[str, str, str, tuple[str, ...], bool], ...]] = {
    "Tables": (
        ("model", "a set of tables", "equal tables", tuple(list_models()), True),
        ("table_size", "all tables", "", _list_decades("GB TB", "10GB", "100TB"), False),
        ("tables", "how many", "1", _list_doubled(1, 1024), False),
        ("dim", "dim", "32", _list_doubled(4, 1024), False),
        ("pooling", "pooling", "32", _list_doubled(1, 512), False),
        ("dtype", "type of a row", "fp32", tuple(DTYPE_BYTES), True),
        ("distribution", "ids", "uniform", _IDS, True),
    ),
    "Batch and GPUs": (
        ("gpus", "GPUs", "as needed", _list_doubled(2, 8192), False),
        ("batch", "batch of each GPU", "1024", _list_doubled(64, 65536), False),
        ("global_batch", "batch of all", "of each", _list_doubled(1024, 2**22), False),
        ("objective", "pass", "forward", OBJECTIVES[1:], True),
        ("sharding", "sharding", "the fastest of TorchRec's", _RUN, True),
        ("payload", "bags travel as", "fp32", PAYLOADS, True),
    ),
    "Machine": (
        ("machine", "machine", DEFAULT_MACHINE, tuple(list_machines()), True),
        ("backend", "library", _OWN, (*map(str, LAW_BACKENDS), "best"), True),
        (PRICE, "price of a GPU", "none", _PRICES, False),
        ("nic_bytes_per_s", "network per GPU", _OWN, _RATES, False),
        ("nvlink_bytes_per_s", "NVLink per GPU", _OWN, _list_decades("GB/s TB/s", "50GB/s", "4TB/s"), False),
        ("nvlink_domain_gpus", "NVLink domain", _OWN, _list_doubled(1, 1024), False),
        ("hbm_bytes", "HBM", _OWN, _HBM, False),
        ("hbm_bytes_per_s", "HBM rate", _OWN, _list_decades("TB/s", "1TB/s", "20TB/s"), False),
    ),
}
"""By group of controls: name, label, value or words if empty, texts to choose, whether only these."""
_OPTION = re.compile(r"--set ([a-z_]+)|--([a-z]+(?:-[a-z]+)*)")


def describe_refusal(error: PerfmodelError, known: Mapping[str, Control]) -> dict[str, object]:
    """The error as JSON: in the page's words, and the names of the controls that it is about.

    A control stands for the option that sets it; a line with a command of this program stays as it is.
    """
    flags = {name: option.flag.removeprefix("--set ") for name, option in OPTIONS.items()}
    named = {flags.get(name, name): control for name, control in known.items()}

    def name_control(match: re.Match[str]) -> str:
        """An option that a message names, as the label of its control."""
        control = named.get(match[1] or match[0])
        return match[0] if control is None else f"\u201c{control.label}\u201d"

    lines = [
        line if "perfmodel " in line else _OPTION.sub(name_control, line) for line in str(error).splitlines()
    ]
    matches = _OPTION.finditer(f"{error.where} {error.message}")
    wrong = {named[name].name for match in matches if (name := match[1] or match[0]) in named}
    return {"error": "\n".join(lines), "wrong": sorted(wrong)}


def list_controls(model: str | None, machine: str | None) -> dict[str, Control]:
    """All controls, by name.

    model, machine  names or files from the command line, which are added to the choices
    """
    typed = {"model": model, "machine": machine}
    controls = {}
    for group, rows in _GROUPS.items():
        for name, label, empty, words, only in rows:
            added = (str(typed[name]),) if typed.get(name) and typed[name] not in words else ()
            # "" is the choice of the model's own value, which no word says
            choices = (*([""] if empty and (only or empty not in words) else []), *words, *added)
            controls[name] = Control(name, label, group, empty, choices, only)
    return controls
