"""One gate and one registry: what reads a file goes through the first, and is tried by way of the second."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from fault_inputs import all_readers

ROOT = Path(__file__).parents[2]
GATE = ("gate.py",)
ASKS = {
    *("read_bounded", "read_text", "read_toml", "read_json", "load_json", "decode_json", "read_yaml"),
    *("read_csv_lines", "csv_lines", "read_as"),
}
"""Functions by which files are read, of which all callers are tried."""
LIBRARIES = ("json", "tomllib", "yaml", "pd", "np", "pickle")
RAW = (
    "load",
    "loads",
    "read_csv",
    "read_parquet",
    "fromfile",
    "loadtxt",
    "open",
    "parse",
)
"""Functions of these that read, or parse, a file whatever it holds."""
OWN = {
    "perfmodel/report/page/assemble.py": "files of the package",
    "perfmodel/schema/fields.py": "shipped limits",
    "perfmodel/schema/machine.py": "a shipped machine or chip",
    "perfmodel/validate/accuracy.py": "shipped measurements",
    "perfmodel/explore/page.py": "files of the package",
    "perfmodel/engine/loads.py": "bytes of a row, by the equation of that name",
    "perfmodel/cli/imports.py": "samples that it is about to replace",
}
"""Files with such a call of their own, and what it reads."""
MEASURES = (
    "calibrate/cuda",
    "calibrate/machine",
    "calibrate/ranks",
    "calibrate/running",
    "calibrate/providers",
)
SHIPPED = {
    *("load_priors", "load_kernel_constants", "load_rates", "load_plan"),
    *(
        "load_claims",
        "load_bands",
        "load_run_bands",
        "read_table",
        "parse_samples",
        "_machine",
        "load_reasons",
        "_describe_host",
    ),
    *("_read_token", "reply"),  # of the live page, which its own tests try
}
"""Functions that ask for what is shipped, was measured or written here, or is copied as it is."""


def calls(path: Path) -> Iterator[tuple[str, ast.expr]]:
    """Of each call in a file: the function that it stands in, and what is called."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    yield function.name, node.func


def sources() -> list[Path]:
    found = [path for room in ("perfmodel", "calibrate") for path in (ROOT / room).rglob("*.py")]
    return [path for path in found if path.name not in GATE]


def test_nothing_reads_past_the_gate() -> None:
    past = set()
    for path in sources():
        where = str(path.relative_to(ROOT))
        if not where.startswith(MEASURES):
            past |= {where for _, called in calls(path) if _reads(called)}
    assert past == set(OWN)


def _reads(called: ast.expr) -> bool:
    """Whether that is a function of a library, or a method of a path."""
    if not isinstance(called, ast.Attribute):
        return getattr(called, "id", "") == "open"
    of = getattr(called.value, "id", "")
    return called.attr in ("read_text", "read_bytes") or (of in LIBRARIES and called.attr in RAW)


def test_every_reader_is_in_the_registry(tmp_path: Path) -> None:
    """What asks the gate runs when the registry's whole files are read."""
    asking = {
        (str(path), function)
        for path in sources()
        for function, called in calls(path)
        if getattr(called, "id", "") in ASKS
    }
    ran: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            ran.add((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        for reader in all_readers():
            for content in reader.whole:
                reader.read(reader.written(content, tmp_path))
    finally:
        sys.setprofile(None)
    left = {function for path, function in asking - ran if function not in SHIPPED}
    assert not left, f"readers that benchmarks/fault_inputs.py does not try: {sorted(left)}"


def test_names_are_used_once() -> None:
    names = [each.name for each in all_readers()]
    assert len(set(names)) == len(names)
