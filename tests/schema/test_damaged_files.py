"""Damaged files for every reader: an answer or an error in words, never a bug or a warning.

``benchmarks/faults.py`` tries thousands.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_calls import called
from fault_files import Reader, all_readers, damaged, failures, limited, tried

READERS = all_readers()
TRIES = 500


def test_damaged_files_end_in_words(tmp_path: Path) -> None:
    found = [(name, wrong) for name, wrong, _ in failures(READERS, TRIES, 0, tmp_path)]
    assert not found, found[:5]


def test_a_long_value_is_cut_in_a_message(tmp_path: Path) -> None:
    chip = next(reader for reader in READERS if reader.name == "chip")
    content = chip.whole[0].replace(b'unit = "byte/s"', b'unit = "' + b"a" * 90_000 + b'"', 1)
    assert content != chip.whole[0]
    wrong, said = tried(chip, chip.written(content, tmp_path))
    assert not wrong and "must be 'byte/s'" in said and len(said) < 3_000


_PROJECT = "project --table-size 1TB --gpus 16 --sharding row-wise"
_PLAN = "plan --model criteo-kaggle --gpus 8 --effort quick"
_IMPORT = "import FILE --machine h100-sxm-ib --set library_version=2.29.2 --out FOLDER/out.json --force"
COMMANDS = {
    "machine": f"{_PROJECT} --machine FILE",
    "chip": "chip plan --model criteo-kaggle --chip FILE",
    "dense layers": f"{_PLAN} --objective throughput --dense FILE",
    "calibration": "collective --op all_to_all --size 1MiB,64MiB --gpus 8 --calibration FILE",
    "samples": _IMPORT,
    "tables": "project --model FILE --gpus 8",
    "histogram": f"{_PROJECT} --distribution histogram:FILE",
    "plan": "plan --model criteo-kaggle --gpus 8 --plan FILE",
    "table rules": f"{_PLAN} --only FILE",
    "plan of any kind": "plan --model FOLDER/m.csv --gpus 2 --plan FILE",
    "log": _IMPORT,
    "log, nccl-tests, options": f"{_IMPORT} --op all_gather --gpus 8 --set gpus_per_node=8",
    "log, rccl-tests JSON": "check FILE --machine mi355x-roce --set gpus_per_node=8",
}
"""A whole command for the files of each reader, by its name or the words before its comma."""


def command_of(reader: Reader, path: Path) -> list[str]:
    """The words of a whole command on a file that the reader accepts. Limits: there is none -> []"""
    line = COMMANDS.get(reader.name, COMMANDS.get(reader.name.partition(",")[0], ""))
    (path.parent / "m.csv").write_text("name,rows,dim,pooling\nt,8,4,1\n", encoding="utf-8")
    return [word.replace("FOLDER", str(path.parent)).replace("FILE", str(path)) for word in line.split()]


def command_failures(
    readers: list[Reader], most: int, folder: Path, tries: int = 30, seed: int = 0
) -> Iterator[tuple[str, str]]:
    """Whole commands on damaged files that their readers accept: reader, and what was wrong.

    most  files of each reader at most, of ``tries`` damaged ones of each
    Limits: an answer, or an error of input, calibration, noise or bands -> nothing is wrong
    """
    lines: set[str] = set()
    for reader in readers:
        accepted, line = 0, " ".join(command_of(reader, folder / "x"))
        if line in lines:  # of another format of the same
            continue
        lines.add(line)
        for number in range(tries):
            dice = random.Random(f"{seed}:{reader.name}:{number}")
            path = reader.written(damaged(dice.choice(reader.whole), dice), folder)
            if tried(reader, path) != ("", "") or not (words := command_of(reader, path)):
                continue
            if (outcome := called(*words)).code not in (0, 2, 3, 5, 6):
                yield reader.name, f"exit code {outcome.code} of {words}: {outcome.err}"
            if (accepted := accepted + 1) == most:
                break


def test_whole_commands_take_what_the_readers_accept(tmp_path: Path) -> None:
    """Of each reader some files: a value that passes a reader may still end a command as a bug."""
    found = list(command_failures(READERS, 1, tmp_path))
    assert not found, found[:5]


@pytest.mark.parametrize("piece", [" ", "mype: 1 "])
def test_spaces_without_end_take_time_in_proportion(piece: str, tmp_path: Path) -> None:
    """40 000 of them took 11 CPU seconds, and ten times as many 1 100."""
    for reader in READERS:
        if reader.name in ("log, nccl-tests", "log, NVSHMEM"):
            for whole in reader.whole:
                middle = whole.index(b"device") if b"device" in whole else len(whole) // 2
                content = whole[:middle] + piece.encode() * (200_000 // len(piece)) + whole[middle:]
                assert not limited(reader, content, tmp_path).wrong
