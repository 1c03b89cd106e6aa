"""Dense layers beside a plan: what ``--dense`` says, and the whole step that ``perfmodel plan`` prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfmodel.cli import run
from perfmodel.errors import BadInputError
from perfmodel.passes.dense import Dense, DenseTime, dense_of
from perfmodel.passes.training import CostedPlan, WholeStep
from perfmodel.plan import Evaluator, PlanTables, uniform_plan
from perfmodel.schema.dense import list_dense, load_dense, load_rates
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_flops, parse_named

TABLES = "rows,dim,pooling,name\n1000000,64,10,big\n1000,64,2,small\n1000000,64,5,other\n"
H100 = "h100-sxm-ib"
FLOOR, RATE = (load_machine(H100).value(name) for name in ("launch_floor_s", "local_sum_bytes_per_s"))


pytestmark = pytest.mark.usefixtures("once")


def test_operations_are_read_and_written() -> None:
    assert [parse_named(text, "FLOP") for text in ("32MFLOP", "1.5 GFLOPs", "2e7FLOP")] == [32e6, 1.5e9, 2e7]
    assert format_flops(32.1e6) == "32.1 MFLOP" and format_flops(989.4e12) == "989 TFLOP"
    for text in ("32", "32MB", "0FLOP", "-1FLOP", "32mFLOP"):
        with pytest.raises(BadInputError):
            parse_named(text, "FLOP", "--dense")


def test_a_name_a_file_operations_and_a_time(tmp_path: Path) -> None:
    named = dense_of("dlrm-dcnv2", H100)
    assert isinstance(named, Dense) and named.model.weights(26 * 128) == 16_030_464
    path = tmp_path / "mine.toml"
    text = 'name = "mine"\nbottom = [2, 3]\ntop = [5, 1]\nrank = 4\nlayers = 2\ngradient_bytes = 4\n'
    text += 'source = "me"\n'
    path.write_text(text, encoding="utf-8")
    mine = dense_of(str(path), H100)
    assert isinstance(mine, Dense) and (mine.name, mine.gradient_bytes) == ("mine", 4)
    assert mine.reduced_bytes(7) == 4 * (6 + 160 + 55)
    assert mine.updated_bytes(7, 0) == 12 * (6 + 160 + 55)
    given = dense_of("32MFLOP", H100)
    assert isinstance(given, Dense) and given.reduced_bytes(7) == 32e6 / 2 * 2
    assert given.updated_bytes(7, 4) == 16e6 * (2 + 2 + 2 * (4 + 4))
    assert given.times(7, 100, 1.0, 1.0)["top"] == pytest.approx(32e8 / (989.4e12 * 0.328))
    assert given.times(7, 100, 1.0, 1.0)["top_backward"] == pytest.approx(64e8 / (989.4e12 * 0.328))
    assert dense_of("3ms", H100) == DenseTime(0.003)
    assert DenseTime(0.003).times(7, 100, 1.0, 1.0)["top"] == pytest.approx(0.001)


@pytest.mark.parametrize(
    "text", ["", "dlrm", "15", "15MB", "-3ms", "0s", "nothing.toml", "15mflop", "1e300FLOP", "2h"]
)
def test_what_is_none_of_them_is_refused(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        dense_of(text, H100)
    assert caught.value.next_step


def test_a_machine_without_a_rate_takes_a_time_alone() -> None:
    assert isinstance(dense_of("3ms", "my-box"), DenseTime)
    with pytest.raises(BadInputError, match=r"my-box") as caught:
        dense_of("32MFLOP", "my-box")
    assert "--dense 3ms" in caught.value.next_step


def test_every_shipped_machine_has_a_rate_and_every_shipped_model_is_read() -> None:
    assert {each.machine for each in load_rates().gpu} == set(list_machines())
    assert [load_dense(name).name for name in list_dense()] == list_dense()


def test_given_operations_take_what_the_layers_of_dcnv2_take_together() -> None:
    """8 H100, 6912 samples each."""
    machine, dense = load_machine(H100), dense_of("dlrm-dcnv2", H100)
    assert isinstance(dense, Dense)
    elements, batch = 26 * 128, 6912
    times = dense.times(elements, batch, machine.value("local_sum_bytes_per_s"), FLOOR)
    flops = 3 * batch * (dense.model.bottom_flops() + dense.model.top_flops(elements))
    reached = flops / (sum(times.values()) * dense.flops_per_s)
    assert load_rates().share_of("Hopper").together == pytest.approx(reached, abs=0.005)


def test_the_error_of_the_dense_time_is_in_the_band() -> None:
    named = dense_of("32MFLOP", H100)
    assert isinstance(named, Dense) and named.error > 0
    found, exact = whole(True, named), whole(True, replace(named, error=0.0))
    assert found.low_s < exact.low_s and found.high_s > exact.high_s


def test_a_given_time_may_have_an_error_and_other_dense_steps_have_theirs() -> None:
    assert dense_of("3ms±10%", H100) == dense_of("3ms +- 0.1", H100) == DenseTime(0.003, 0.1)
    exact, given = whole(True, DenseTime(0.003)), whole(True, DenseTime(0.003, 0.1))
    assert given.low_s < exact.low_s - 1e-4 and given.high_s > exact.high_s + 1e-4
    for text in ("3ms±200%", "3ms±-5%", "3ms±"):
        with pytest.raises(BadInputError):
            dense_of(text, H100)


def test_the_all_reduce_of_dense_gradients_errs_too() -> None:
    """1 GFLOP of a sample are 1 GB of gradients: their exchange is most of the step."""
    heavy = dense_of("1GFLOP", H100)
    assert isinstance(heavy, Dense)
    tables = PlanTables.of(TableSet("mine", (Table("a", 10**6, 64, 10.0, "fp32"),)))
    evaluator = Evaluator.on(H100, tables, 8, 16, training=True)
    costed = CostedPlan.of(evaluator, uniform_plan(tables, "row-wise", 16, 8))
    time = costed.step(heavy).step_s
    low, high = costed.band(replace(heavy, error=0.0), time)
    size, gpus = np.array([heavy.reduced_bytes(64)]), np.array([16.0])
    links = evaluator.setting.links.timing("all_reduce", size, gpus, 8)
    assert links.time_s[0] > 0.5 * time
    assert high - time > 0.99 * (links.high_s[0] - links.time_s[0]) > 0.1 * time
    assert time - low > 0.5 * (links.time_s[0] - links.low_s[0])


def whole(training: bool, dense: Dense | DenseTime, gpus: int = 16) -> WholeStep:
    tables = PlanTables.of(TableSet("mine", (Table("a", 10**6, 64, 10.0, "fp32"),)))
    evaluator = Evaluator.on(H100, tables, 1024, gpus, training=training)
    return WholeStep.of(CostedPlan.of(evaluator, uniform_plan(tables, "row-wise", gpus, min(gpus, 8))), dense)


@pytest.mark.parametrize("training", [True, False])
def test_the_numbers_of_a_step_add_up(training: bool) -> None:
    found = whole(training, DenseTime(0.003))
    tasks = found.tasks()
    assert sum(task["time_s"] for task in tasks) == pytest.approx(found.found.serial_s)
    assert sum(task["path_s"] for task in tasks) == pytest.approx(found.found.step_s)
    assert found.dense_s == pytest.approx(0.003)
    assert 0 <= found.exposed_s <= found.communication_s < found.found.serial_s
    assert found.low_s <= found.found.step_s <= found.high_s
    assert found.parts.dense_reduce == 0 == found.reduced_bytes == found.parts.dense_update


def test_operations_have_gradients_to_reduce_where_there_are_other_gpus() -> None:
    dense = dense_of("32MFLOP", H100)
    found = whole(True, dense)
    assert found.reduced_bytes == 32e6 and found.parts.dense_reduce > 0
    exposed = found.found.exposed()
    assert exposed["dense reduce"] > 0
    assert found.exposed_s == pytest.approx(sum(exposed.values()) - exposed["dense reduce"])
    assert whole(False, dense).reduced_bytes == 0 == whole(False, dense).parts.dense_reduce
    assert found.parts.dense_update == pytest.approx(16e6 * (2 + 2 + 8) / RATE + FLOOR)
    one = whole(True, dense, gpus=1)
    assert one.reduced_bytes == 0 == one.communication_s == one.parts.dense_reduce
    assert one.parts.dense_update > 0


def test_a_long_dense_part_hides_what_does_not_wait_for_it() -> None:
    """1 s after the embeddings: the keys of the next batch travel meanwhile, the exchanges do not."""
    found = whole(True, DenseTime(1.0))
    exposed = found.found.exposed()
    assert exposed["next keys"] == pytest.approx(0, abs=1e-9)
    assert exposed["backward exchange"] > 0


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    return str(path)


def test_the_page_has_the_whole_step(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--model", model, "--gpus", "16", "--max-hbm", "300MB", "--effort", "quick"]
    words += ["--objective", "throughput"]
    for columns in ("100", "70"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", columns)
            assert run([*words, "--dense", "dlrm-dcnv2"]) == 0
        out = capsys.readouterr().out
        block = out[out.index("\n\n") : out.index("The search dealt")]
        assert max(len(line) for line in block.splitlines()) <= int(columns)
        plain = " ".join(out.split())
        assert "The band has an error of 12.0 % of it." in " ".join(block.split())
        for said in ("With dense layers:", "exposed", "critical path", "MFLOP per sample", "35.8 %", "band"):
            assert said in plain, said
    assert run([*words, "--dense", "3ms"]) == 0
    assert "as given: forward and backward" in " ".join(capsys.readouterr().out.split())
    assert run(words) == 0
    assert "With dense layers" not in capsys.readouterr().out


def test_the_document_has_the_schedule(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "plan",
        "--model",
        model,
        "--gpus",
        "16",
        "--max-hbm",
        "300MB",
        "--effort",
        "quick",
        "--json",
    ]
    assert run([*words, "--dense", "dlrm-dcnv2"]) == 0
    assert json.loads(capsys.readouterr().out)["dense_step"]["dense"] == "dlrm-dcnv2"
    assert run([*words, "--objective", "throughput", "--dense", "32MFLOP"]) == 0
    step = json.loads(capsys.readouterr().out)["dense_step"]
    assert step["dense"] is None
    assert step["step_s"] <= step["serial_s"] and step["low_s"] <= step["step_s"] <= step["high_s"]
    assert step["samples_per_s"] == pytest.approx(1024 * 16 / step["step_s"])
    assert step["serial_share"] == pytest.approx(step["communication_s"] / step["serial_s"])
    assert step["exposed_share"] == pytest.approx(step["exposed_s"] / step["step_s"])
    assert {record["batch"] for record in step["timeline"]} == {0, 1, 2}
    assert set(step["timeline"][0]) == {"batch", "task", "stream", "device", "start_s", "end_s", "critical"}
    assert run([*words, "--dense", "1ms"]) == 0
    alone = json.loads(capsys.readouterr().out)["dense_step"]
    assert {record["batch"] for record in alone["timeline"]} == {0}
    assert alone["dense_s"] == pytest.approx(0.001) and alone["dense_efficiency"] is None
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["dense_step"] is None


def test_what_cannot_be_used_is_refused_before_a_search(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--model", model, "--gpus", "16", "--dense", "dlrm-dcn"]) == 2
    assert "dlrm-dcnv2" in capsys.readouterr().err
