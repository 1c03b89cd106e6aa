"""Damaged files for every reader: an answer or an error in words, never a bug or a warning.

``benchmarks/faults.py`` tries thousands.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_damages import command_failures, failures, tried
from fault_inputs import all_readers

READERS = all_readers()
TRIES = 500


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_whole_files_are_read(reader: object, tmp_path: Path) -> None:
    """Else nothing is tried but the first check of each reader."""
    for content in reader.whole:  # type: ignore[attr-defined]
        reader.read(reader.written(content, tmp_path))  # type: ignore[attr-defined]


def test_damaged_files_end_in_words(tmp_path: Path) -> None:
    found = [(name, wrong) for name, wrong, _ in failures(READERS, TRIES, 0, tmp_path)]
    assert not found, found[:5]


def test_a_long_value_is_cut_in_a_message(tmp_path: Path) -> None:
    chip = next(reader for reader in READERS if reader.name == "chip")
    content = chip.whole[0].replace(b'unit = "byte/s"', b'unit = "' + b"a" * 90_000 + b'"', 1)
    assert content != chip.whole[0]
    wrong, said = tried(chip, chip.written(content, tmp_path))
    assert not wrong and "must be 'byte/s'" in said and len(said) < 3_000


def test_a_bug_would_be_seen(tmp_path: Path) -> None:
    def broken(path: Path) -> object:
        return 1 / 0

    first = READERS[0]
    reader = type(first)("broken", ".x", (b"x",), broken)
    assert "ZeroDivisionError" in tried(reader, reader.written(b"x", tmp_path))[0]


def test_whole_commands_take_what_the_readers_accept(tmp_path: Path) -> None:
    """Of each reader some files: a value that passes a reader may still end a command as a bug."""
    found = [(name, wrong) for name, wrong, _ in command_failures(READERS, 2, 50, 0, tmp_path)]
    assert not found, found[:5]


def test_a_bug_of_a_command_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("perfmodel.chip.plan.plan_chip", broken)
    chips = [reader for reader in READERS if reader.name == "chip"]
    ((name, wrong, _),) = command_failures(chips, 1, 50, 0, tmp_path)
    assert name == "chip" and "exit code 1" in wrong and "ZeroDivisionError" in wrong
