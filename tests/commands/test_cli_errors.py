"""Streams that cannot be written or read, folders that are none, names that are nearly right."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called

from perfmodel.cli.output import check_folder, check_target, fail
from perfmodel.errors import BadInputError
from perfmodel.schema.calibration import load_calibration, read_calibration, save_calibration
from perfmodel.schema.files import unknown_name, write_whole
from perfmodel.schema.gate import read_bounded
from perfmodel.schema.machine import load_machine

SHIPPED = "h100-sxm-ib/nccl-2.29.2-stream"


@pytest.mark.parametrize("place", ["/proc/nowhere/x.csv", "/proc/x.csv", "a\0b.csv", "x" * 300 + ".csv"])
def test_a_place_that_cannot_be_written_is_bad_input(place: str) -> None:
    with pytest.raises(BadInputError):
        check_target(Path(place), force=False)
        write_whole(Path(place), lambda path: None)


def test_a_file_that_is_there_brings_a_name_that_is_free(tmp_path: Path) -> None:
    for name in ("my plan.csv", "my plan-2.csv"):
        (tmp_path / name).write_text("")
    with pytest.raises(BadInputError, match="exists already") as found:
        check_target(tmp_path / "my plan.csv", force=False)
    assert found.value.next_step == f"--out '{tmp_path}/my plan-3.csv' is free; or remove it first."
    longest = tmp_path / ("x" * 251 + ".csv")
    longest.write_text("")
    with pytest.raises(BadInputError, match=r"x{60}-2\.csv is free"):
        check_target(longest, force=False)


def test_a_link_that_leads_nowhere_is_a_file_that_is_there(tmp_path: Path) -> None:
    """What it names may be a file of an unmounted disk: the link is replaced only with --force."""
    link = tmp_path / "mine.csv"
    link.symlink_to(tmp_path / "away/mine.csv")
    (tmp_path / "mine-2.csv").symlink_to(tmp_path / "away/other.csv")
    with pytest.raises(BadInputError, match="is a link already, to a file that is not there") as found:
        check_target(link, force=False)
    assert "mine-3.csv is free" in found.value.next_step
    check_target(link, force=True)


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", Path("/proc/x")):
        with pytest.raises(BadInputError, match="cannot be written"):
            check_folder(place)
    with pytest.raises(BadInputError, match="cannot be written"):
        save_calibration(load_calibration(SHIPPED), tmp_path / "file" / "c.json")
    check_folder(tmp_path / "new" / "one")
    assert list((tmp_path / "new" / "one").iterdir()) == []


def test_a_long_list_is_no_name_of_a_file(tmp_path: Path) -> None:
    """More than the 255 bytes that a file system takes for a name."""
    sizes = ",".join(f"{i}TB" for i in range(1, 60))
    assert len(sizes) > 255
    found = called("report", "--table-size", sizes, "--out", str(tmp_path / "no" / "r.html"))
    assert found.code == 2 and "is not a folder" in found.err
    with pytest.raises(BadInputError, match="calibration"):
        load_calibration("x" * 300)
    assert called("sweep", "--model", "x" * 300).code == 2
    assert called("project", "--model", "x" * 300).code == 2


def test_endless_and_empty_streams(tmp_path: Path) -> None:
    assert read_bounded(Path("/dev/null"), "log") == b""
    with pytest.raises(BadInputError, match="too large"):
        read_bounded(Path("/dev/full"), "calibration", 1024)
    for path in (tmp_path, tmp_path / "none", Path("a\0b")):
        with pytest.raises(BadInputError, match="cannot be read"):
            read_bounded(path, "log")


def test_a_number_of_thousands_of_digits_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for text in ('{"schema_version": ' + "9" * 5000 + "}", '{"schema_version": 1, "sample_count": 1e999}'):
        path.write_text(text)
        with pytest.raises(BadInputError):
            read_calibration(path)


def test_a_close_name_is_suggested_and_a_far_one_is_not() -> None:
    known = ["h100-sxm-ib", "l40s-pcie", "nccl"]
    for text, meant in (
        ("H100-SXM-IB", "h100-sxm-ib"),
        ("h100", "h100-sxm-ib"),
        ("ncl", "nccl"),
        ("NCCL", "nccl"),
    ):
        assert f"did you mean {meant}?" in unknown_name("name", text, known).next_step
    for text in ("mpi", "tpu-v5", "", "x"):
        assert "did you mean" not in unknown_name("name", text, known).next_step
    with pytest.raises(BadInputError, match="nofile"):
        load_calibration("nofile")
    with pytest.raises(BadInputError, match="did you mean latest"):
        load_calibration("latset")


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("gb300", "gb200-nvl72"),
        ("gb300-nvl72", "gb200-nvl72"),
        ("b200", "b200-sxm-ib or b200-sxm-roce"),
        ("b300", "b200-sxm-ib or b200-sxm-roce"),
        ("h100", "h100-sxm-ib or h100-paper or h100-sxm-efa"),
        ("mi300x", "mi355x-roce"),
    ],
)
def test_an_unknown_machine_names_the_nearest_shipped_ones(typed: str, nearest: str) -> None:
    with pytest.raises(BadInputError) as caught:
        load_machine(typed)
    assert caught.value.next_step.startswith(f"did you mean {nearest}? known: a100-")


def test_a_command_in_an_error_stays_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An indented line is a command: on a line of its own, whole, whatever the terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    command = "perfmodel calibrate " + "--only mpi:all_to_all " * 8 + "--out '/a place/of my own'"
    fail(BadInputError("a long story " * 9, f"{'go on with ' * 9}\n  {command}"), verbose=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines.count(f"         {command}") == 1
    assert max(len(line) for line in lines if command not in line) <= 60
    fail(BadInputError("short.", f"  {command}"), verbose=False)
    assert capsys.readouterr().err.splitlines()[1] == f"         {command}"
    install = "pip install " + "a-package==1.0 " * 6 + "&& pip install another"
    fail(BadInputError("short.", install), verbose=False)
    assert capsys.readouterr().err.splitlines()[1] == f"       {install}"


def test_of_many_names_few_are_compared_letter_by_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 000 names took 22 CPU seconds."""
    names, compared = [f"user_{i}_clicked" for i in range(30_000)], []
    close = difflib.get_close_matches

    def counted(word: str, possibilities: list[str], **options: Any) -> list[str]:
        compared.append(len(possibilities))
        return close(word, possibilities, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    error = unknown_name("table", "user_1234clicked", names)
    assert error.next_step.startswith("the nearest of 30000: user_1234_clicked, ")
    assert sum(compared) <= 60
