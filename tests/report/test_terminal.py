"""Plain tables: alignment, width, wrapping."""

from __future__ import annotations

import fcntl
import os
import shlex
import struct
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.report.terminal import (
    WIDTH,
    command_lines,
    facts,
    page_width,
    paragraph,
    sides,
    table,
    unbroken,
    wrapped,
)


def test_empty_columns_disappear_and_lines_have_no_trailing_spaces() -> None:
    text = table(["a", "", "b"], [["1", "", "2"], ["3", "", ""]], left=(0, 2))
    assert text.splitlines() == [" a  b", " 1  2", " 3"]


def test_a_stream_has_the_width_of_its_own_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    with open(leader, "wb"), open(follower, "w") as terminal, Path(os.devnull).open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert (page_width(terminal), page_width()) == (72, WIDTH)
        monkeypatch.setattr(sys, "stdout", terminal)
        assert (page_width(), page_width(file)) == (72, WIDTH)


@given(st.lists(st.lists(st.text("abc 1", max_size=30), min_size=3, max_size=3), max_size=5))
def test_every_row_is_one_line_with_its_cells(rows: list[list[str]]) -> None:
    lines = table(["x", "y", "z"], rows, left=(0,)).split("\n")
    assert len(lines) == len(rows) + 1
    for row, line in zip(rows, lines[1:], strict=True):
        assert "".join(row).replace(" ", "") == line.replace(" ", "")


@pytest.mark.parametrize(
    ("columns", "page"),
    [("", 100), ("80", 80), ("67", 67), ("60", 60), ("20", 60), ("500", 100), ("many", 100)],
)
def test_the_page_is_as_wide_as_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, page: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert page_width() == page
    row = ["name", "1 GiB", "word " * 20, "95 % band of it"]
    for text in (
        table(["a", "b", "c", "d"], [row] * 2, left=(0, 2)),
        table(["a"], [["x" * 300]]),
        facts([("a", "word " * 50)]),
        paragraph("word " * 50 + "x" * 200),
        sides("left " * 20, "right"),
        command_lines("perfmodel " + "--option value " * 12),
    ):
        assert max(map(len, text.splitlines())) <= page


def test_columns_are_dropped_before_cells_are_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    headers, row = ["name", "time", "band", "limit"], ["x" * 20, "9.00 µs", "8 – 10 µs", "y" * 28]
    text = table(headers, [row], drop=(3, 2))
    assert "y" * 28 not in text and "band" in text and text.endswith("Left out at 60 columns: limit.")
    for last, is_left_out in (("z" * 15, False), ("z" * 16, True)):  # 60 columns are full, or a letter more
        assert (last in table(headers[:3], [["x" * 20, "y" * 20, last]], drop=(2, 1))) is not is_left_out
    monkeypatch.setenv("COLUMNS", "100")
    assert "Left out" not in table(headers, [[*row[:3], "y" * 80]], drop=(3, 2))


def test_a_long_command_goes_on_after_a_backslash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    words = "perfmodel project --table-size 10TB --machine h100-sxm-ib --batch 1024"
    text = command_lines(words)
    assert " ".join(text.replace("\\\n", " ").split()) == words and text.count("\\\n") == 1
    assert command_lines("perfmodel show models") == "   perfmodel show models"
    assert command_lines(f"perfmodel --ab {'z' * 48}").endswith(f"     --ab {'z' * 48}")  # with its value


def test_a_long_command_is_never_cut_inside_a_quoted_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backslash at the end of a line means nothing inside quotes."""
    monkeypatch.setenv("COLUMNS", "60")
    words = ["perfmodel", "show", "--model", "a place / with many words, none of them short, 'and' quotes"]
    text = command_lines(shlex.join(words))
    assert "\\\n" in text and shlex.split(text.replace("\\\n", " ")) == words


def test_text_is_folded_before_a_column_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    headers, row = ["step", "time", "clock"], ["some words that fold " * 3, "9.00 µs", "eager"]
    assert "clock" in (text := table(headers, [row], left=(0, 2), drop=(2,))) and "9.00 µs" in text
    text = table(headers, [["x" * 50, "9.00 µs", "eager"]], left=(0, 2), drop=(2,))
    assert "eager" not in text and text.endswith("Left out at 60 columns: clock.")
    words = "an option with words to copy whole"
    assert words in table(["step", "option"], [["some words that fold here", unbroken(words)]], left=(0, 1))


def test_a_number_stays_with_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    row = ["x" * 40, "716 ns ± 34.1 %", "128 B – 8 MiB"]
    lines = [line.split() for line in table(["name", "alpha", "range"], [row]).splitlines()]
    assert paragraph(f"{'y' * 60} {'x' * 56} aa-bb").endswith("\naa-bb")  # a hyphen holds where words fit
    assert lines[1:] == [["x" * 40, "716", "ns", "128", "B"], ["±", "34.1", "%", "–", "8", "MiB"]]


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda last: sides("x" * 40, last), "y" * 18),
        (lambda last: command_lines("x" * 28 + " " + last), "y" * 28),
        (lambda last: command_lines("x" * 60 + f" {'y' * 26} " + last), "z" * 26),  # on its second line
        (lambda last: paragraph("x" * 29 + " " + last), "y" * 30),
        (lambda last: paragraph("  " + "x" * 20 + " " + last, indent=9), "y" * 28),
        (lambda last: facts([("ab", "x" * 26 + " " + last)], indent=1), "y" * 28),
        (lambda last: facts([("a", f"x\n{last}"), ("ab", "y")]), "z" * 80),
        (lambda last: table(["a", "b"], [["x" * 28, "y" * 14 + " " + last]], left=(0, 1)), "z" * 14),
        (lambda last: table(["a", "b"], [["x" * 28, "y" * 14 + " " + last]], indent=3), "z" * 12),
    ],
)
def test_a_line_is_as_long_as_the_page_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[str], str], words: str
) -> None:
    """Exactly 60 columns are filled; a letter more is on the next line, but for a command in a fact."""
    monkeypatch.setenv("COLUMNS", "60")
    full, more = write(words).splitlines(), write(f"{words}-").splitlines()
    is_command = len(words) == 80
    assert max(map(len, full)) == (86 if is_command else 65 if "\\" in full[0] else 60)
    assert len(more) == len(full) + (not is_command)
    assert not any(line.endswith(" ") for line in full)


def test_a_narrow_cell_breaks_at_hyphens_and_not_in_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    names = ["all-to-all (splits,\ntable-row-wise)".replace("\n", " "), "bucketize indices"]
    lines = table(["step", *["measured"] * 4], [[name, *["1128.4 KiB"] * 4] for name in names])
    words = [line[1:12].strip() for line in lines.splitlines()]
    assert words == ["step", "all-to-all", "(splits,", "table-row-", "wise)", "bucketize", "indices"]
    assert max(map(len, lines.splitlines())) <= 60


@pytest.mark.parametrize("columns", ["60", "81"])
def test_no_word_of_a_table_is_broken(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """The labels of what-ifs are indented, and their options are to be copied."""
    monkeypatch.setenv("COLUMNS", columns)
    labels = ["samples per GPU 1 024 → 4 096", "NVLink domain 8 → 64 GPUs", "memory 80 GB → 160 GB per GPU"]
    options = ["--batch 4096", "--set nvlink_domain_gpus=64", "--set hbm_bytes=160GB"]
    rows = [
        [f" {label}", "3.06 ms", "1.32×", unbroken(word)] for label, word in zip(labels, options, strict=True)
    ]
    lines = table(["What would change the plan", "time", "samples/s, × now", ""], rows, left=(0, 3))
    words = {word for row in [*labels, *options] for word in row.split()}
    assert words <= set(lines.split()) and max(map(len, lines.splitlines())) <= int(columns)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        (
            "h100-sxm-ib/nccl-2.29.2-stream-and-many-more",
            ["h100-sxm-ib/nccl-2.29.2-stream-and-many-", "more"],
        ),
        ("(x^0.454+y^0.454+z^0.454)^(1/0.454)+x^0.454", ["(x^0.454+y^0.454+z^0.454)^(1/", "0.454)+x^0.454"]),
        ("data/measurements/kernels/h200_kernels.csv", ["data/measurements/kernels/h200_", "kernels.csv"]),
    ],
)
def test_a_long_name_is_broken_at_a_sign(
    monkeypatch: pytest.MonkeyPatch, word: str, parts: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert paragraph(word, 20).split() == parts


def test_a_path_stays_whole_where_long_words_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = "/data/of/a/cluster/with/a/long/name/and/a/long/folder/all_reduce.log"
    assert wrapped(f"wrote the file {path}", 60, long_words=False) == ["wrote the file", path]
    assert path not in paragraph(f"wrote the file {path}")
