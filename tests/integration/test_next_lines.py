"""Before and after a calibration: what is said about it leads somewhere."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from simulated_ranks import ONLY, SIZES, Ranks, folder, ranks

from calibrate.running import stack
from perfmodel.schema.run_folders import latest_run

__all__ = ["ranks"]  # fixtures
KERNELS = ("calibrate", "--only", "kernels:copy", "--quick")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs another torch: the stack is another one then."""

    def install(version: str) -> None:
        monkeypatch.setattr(stack, "describe", lambda world: {"mpi": "5", "torch": version, "same": "1"})

    return install


def next_lines(out: str) -> list[str]:
    return [line[9:] for line in out[out.index("\nNext ") + 1 :].splitlines()]


def test_another_stack_is_a_new_run_and_kernels_alone_are_no_calibration(
    ranks: Ranks, cli: Any, torch: Any, tmp_path: Path
) -> None:
    ranks.fields = {"kernels": True, "backends": ("mpi", "gloo")}
    torch("2.12")
    assert cli(*ONLY, *SIZES, "--quick", "--out", "my runs").code == 0
    (older,) = (tmp_path / "my runs").iterdir()
    torch("2.13")
    for words in (KERNELS, (*KERNELS, "--json"), (*KERNELS, "--plan-only")):
        said = cli(*words, "--out", "my runs").err
        assert f"the stack changed since {older.name} (torch 2.12 → 2.13): this is a new run" in " ".join(
            said.split()
        )
        assert "\n           perfmodel calibrate --quick --out 'my runs'\n" in said
        assert "same" not in said
    found = cli(*KERNELS, "--out", "my runs", "--fresh")
    (line,) = next_lines(found.out)
    assert line == "perfmodel calibrate --quick --out 'my runs'"
    done = cli(*shlex.split(line)[1:])
    assert done.code == 0 and "--calibration" in next_lines(done.out)[0]
    assert "the stack changed" in done.err and "makes no calibration" not in done.err
    assert "the stack changed" not in cli(*KERNELS, "--out", "my runs").err  # it has one now


def test_kernels_where_no_collective_can_be_measured_promise_none(ranks: Ranks, cli: Any) -> None:
    ranks.fields = {"kernels": True, "ranks": 1}
    found = cli(*KERNELS)
    assert found.code == 0 and "Next" not in found.out


@pytest.mark.parametrize("library", ["mpi", "gloo"])
def test_passes_without_the_collectives_below_them_name_those_first(
    ranks: Ranks, cli: Any, library: str
) -> None:
    ranks.fields = {"kernels": True, "backends": ("mpi", "gloo")}
    found = cli("calibrate", "--only", "composed", "--backend", library, "--quick", "--ranks", "2")
    lines = next_lines(found.out)
    assert lines == ["perfmodel calibrate --quick --ranks 2"]


def test_passes_over_one_library_beside_a_calibration_of_another(ranks: Ranks, cli: Any) -> None:
    ranks.fields = {"kernels": True, "backends": ("mpi", "gloo")}
    assert cli("calibrate", "--only", "mpi", *SIZES, "--quick").code == 0
    found = cli("calibrate", "--only", "composed", "--backend", "gloo", "--quick")
    assert next_lines(found.out)[-1] == "perfmodel calibrate --only gloo --quick"
    refused = cli("validate", "--run", "latest")
    assert refused.code == 3 and "perfmodel calibrate --only gloo --quick" in refused.err
    assert cli("calibrate", "--only", "gloo", "--quick").code == 0
    assert cli("validate", "--run", "latest").code in (0, 6)


def test_what_stays_noisy_is_tried_with_what_was_typed(ranks: Ranks, cli: Any, tmp_path: Path) -> None:
    ranks.fields = {"visit_noise": 0.8, "overhead_s": 0.5}
    found = cli(*ONLY, *SIZES, "--quick", "--noise", "4%", "--out", "my runs", "--ranks", "2")
    (line,) = re.findall(r"Try:\n +(perfmodel .*)", found.out)
    assert line == (
        "perfmodel calibrate --only mpi:all_to_all --rigorous --ranks 2 --sizes 1KiB..1MiB --clock eager "
        "--out 'my runs'"
    )


def test_a_functional_check_is_not_tried_again(ranks: Ranks, cli: Any) -> None:
    ranks.fields = {"visit_noise": 0.8, "overhead_s": 0.5, "ranks": 4, "cores_per_node": 2}
    found = cli(*ONLY, *SIZES, "--quick", "--oversubscribe")
    assert found.code == 0 and "noisy" not in found.out and "Try" not in found.out
    assert folder(Path.cwd()).is_dir() and "Next" not in found.out


def test_a_projection_without_kernels_names_the_line_that_times_them_and_it_does(
    ranks: Ranks, cli: Any, torch: Any
) -> None:
    """torch was installed after the collectives were measured: kernels alone would lie in another run."""
    ranks.fields = {"backends": ("gloo",)}
    torch("none")
    assert cli("calibrate", "--only", "gloo", "--quick", "--ranks", "2").code == 0
    asked = ("project", "--table-size", "1GB", "--gpus", "2", "--calibration", "latest")
    page = cli(*asked).out
    (line,) = [line.strip() for line in page.splitlines() if "perfmodel calibrate" in line]
    assert line == "perfmodel calibrate --quick"
    ranks.fields = {"backends": ("gloo",), "kernels": True}
    torch("2.13")
    assert cli(*shlex.split(line)[1:]).code == 0
    assert "perfmodel calibrate" not in cli(*asked).out


def test_what_was_just_measured_is_not_advised_again_but_at_other_sizes(
    ranks: Ranks, cli: Any, torch: Any
) -> None:
    """Splits, lengths and bags of a small batch are below the sizes of the run: those are what is missing."""
    ranks.fields = {"backends": ("gloo",), "kernels": True}
    torch("2.13")
    done = ("calibrate", "--only", "gloo,kernels", "--quick", "--ranks", "2", "--sizes", "64KiB..1MiB")
    assert cli(*done).code == 0
    asked = ("project", "--table-size", "1GB", "--gpus", "2", "--batch", "64", "--calibration", "latest")
    (line,) = [each.strip() for each in cli(*asked).out.splitlines() if "perfmodel calibrate" in each]
    only, sizes = re.fullmatch(r"perfmodel calibrate --only (\S+) --sizes (\S+)", line).groups()  # type: ignore[union-attr]
    assert set(only.split(",")) <= {"gloo:all_to_all", "gloo:reduce_scatter"} and sizes.startswith("32B..")
    again = cli(*shlex.split(line)[1:], "--ranks", "2", "--quick")
    assert again.code == 0, again.err
    assert line not in [each.strip() for each in cli(*asked).out.splitlines()]


def test_other_work_in_a_run_makes_no_calibration_partial_or_complete(ranks: Ranks, cli: Any) -> None:
    ranks.fields = {"kernels": True, "backends": ("mpi", "gloo"), "overhead_s": 1.0}
    assert cli("calibrate", "--only", "mpi:all_to_all", *SIZES, "--quick").code == 0
    gloo = ("calibrate", "--only", "gloo:all_to_all,kernels:copy", *SIZES, "--quick")
    cut = cli(*gloo, "--time-limit", "85s")
    assert cut.code == 0 and "more measured in part" in cut.out
    assert states(cli) == {"mpi": True, "gloo": False}
    assert cli(*KERNELS).code == 0  # whole by itself, and nothing of gloo
    assert states(cli) == {"mpi": True, "gloo": False}
    assert cli(*gloo).code == 0
    assert states(cli) == {"mpi": True, "gloo": True}


def states(cli: Any) -> dict[str, bool]:
    """Whether the calibration of each library is complete."""
    run = latest_run()
    found = [json.loads(cli("show", str(path), "--json").out)["calibration"] for path in run.glob("*.json")]
    return {item["backend"]: item["complete"] for item in found}


def test_logs_are_imported_into_a_file_that_is_not_here_yet(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("project", "--table-size", "10TB", "--sharding", "row-wise")
    assert "--out mine.json" in cli(*asked).out
    (tmp_path / "mine.json").touch()
    assert "--out mine-2.json" in cli(*asked).out and "--out mine.json" not in cli(*asked).out
