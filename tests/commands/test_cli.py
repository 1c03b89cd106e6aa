"""The command line: exit codes, error texts, one JSON document, nothing half written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import is_an_error

import perfmodel
from calibrate.running import stack
from perfmodel import __version__
from perfmodel.cli import app, lazy, main
from perfmodel.cli.options import collective_name, count_values, size_values, split_values
from perfmodel.cli.output import plain
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.schema.files import write_whole

# --- the program itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "shown"), [("4f1c2ab", " (git 4f1c2ab)"), ("", "")])
def test_version_has_the_commit_of_a_checkout(
    cli: Any, monkeypatch: pytest.MonkeyPatch, revision: str, shown: str
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(stack, "git_revision", lambda folder: asked.append(folder) or revision)
    assert cli("--version").out == f"perfmodel {__version__}{shown}\n"
    assert [folder / "perfmodel" / "__init__.py" for folder in asked] == [Path(perfmodel.__file__)]


def test_help_lists_the_commands(cli: Any) -> None:
    shown = cli("--help").out
    for name in app.COMMANDS:
        assert f"\n  {name} " in shown


def test_a_group_has_its_own_help_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lazy.Command("measured:ShowOptions", "show:show", "What is shipped.")
    inner = {"boxes": shown}
    own = lazy.CommandGroup("One summary.", "One help.", inner)
    root = lazy.LazyGroup(name="perfmodel").add({"own": own})
    with pytest.raises(SystemExit) as left:
        root(["own", "--help"])
    said = capsys.readouterr().out
    assert left.value.code == 0 and "One help." in said and "What is shipped." in said and "boxes" in said
    root(["own", "boxes", "machines", "h100-sxm-ib", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["command"] == "show"


def test_unknown_commands_and_options_are_bad_input(cli: Any) -> None:
    is_an_error(cli("projekt"), 2, "projekt")
    is_an_error(cli("show", "machines", "--nope"), 2, "--nope", "perfmodel show --help")
    is_an_error(cli("collective", "--op", "all_gather"), 2, "--size")


def test_exit_codes_follow_the_exception(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfmodel.schema import machine

    def fail_with(error: BaseException) -> Any:
        def broken() -> list[str]:
            raise error

        return broken

    cases: list[tuple[BaseException, int, str]] = [
        (NoCalibrationError("no curve", "measure it"), 3, "error: no curve\n       measure it\n"),
        (KeyboardInterrupt(), 130, "stopped"),
        (ZeroDivisionError("oops"), 1, "this is a bug in perfmodel"),
    ]
    for error, code, text in cases:
        monkeypatch.setattr(machine, "list_machines", fail_with(error))
        outcome = cli("show", "machines")
        assert (outcome.code, outcome.out) == (code, "")
        assert text in outcome.err
        assert "Traceback" not in outcome.err


def test_a_traceback_only_with_v(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in (
        (["show", "machines", "nope"], False),
        (["show", "machines", "nope", "-v"], True),
    ):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 2
        assert ("Traceback" in capsys.readouterr().err) is expected


# --- options ----------------------------------------------------------------------------------------------


def test_lists_and_ranges() -> None:
    assert size_values(["1KiB..8KiB", "64"]) == [64, 1024, 2048, 4096, 8192]
    assert size_values(["1MB..3MB"]) == [1_000_000, 2_000_000, 3_000_000]
    assert count_values(["8..64,3"], "--gpus") == [3, 8, 16, 32, 64]
    assert split_values(["a,b", "c"], "--x") == ["a", "b", "c"]
    assert [collective_name(n) for n in ("all-to-all", "AllReduce", "broadcast")] == [
        "all_to_all",
        "all_reduce",
        "broadcast",
    ]
    for bad in (["1MiB,"], ["2MiB..1MiB"], ["1Mb"], ["-1MiB"], ["0"]):
        with pytest.raises(BadInputError):
            size_values(bad)
    with pytest.raises(BadInputError, match="all_gather"):
        collective_name("all_gatter")


def test_plain_values_for_json() -> None:
    import numpy as np

    value = {"a": np.float64("nan"), "b": np.arange(2), "c": {3, 1}, "d": (True, None, "x"), "e": np.int8(4)}
    assert plain(value) == {"a": None, "b": [0, 1], "c": [1, 3], "d": [True, None, "x"], "e": 4}


# --- machines, models -------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")

    def broken(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(BadInputError, match="no space left"):
        write_whole(target, broken)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_machines_and_models_list_what_is_shipped(cli: Any) -> None:
    listed = json.loads(cli("show", "machines", "--json").out)
    assert listed["schema_version"] == 3
    names = [machine["name"] for machine in listed["machines"]]
    assert "h100-sxm-ib" in names
    text = cli("show", "machines").out
    assert all(name in text for name in names)
    one = cli("show", "machines", "h100-sxm-ib").out
    assert "nic_bytes_per_s" in one and "datasheet" in one
    assert "mlperf-dlrm-dcnv2" in cli("show", "models").out
    full = json.loads(cli("show", "models", "mlperf-dlrm-dcnv2", "--json").out)
    assert len(full["models"][0]["table_list"]) == full["models"][0]["tables"] == 26
