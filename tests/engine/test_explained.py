"""``--explain STEP``: what is printed gives the bytes, the time and the band again, for every step."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import pkgutil
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import Outcome

from perfmodel import engine, model
from perfmodel.answer import project_one
from perfmodel.answer.ranking import build_explained_pass
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.explained import ExplainedPass, Explanation, explain_collective
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import HANDOVER
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.model import exchanges
from perfmodel.model.recording import (
    UNITS,
    Traced,
    derive,
    equation,
    read_formula,
    record_equations,
    to_float,
)
from perfmodel.plan.plan_files import write_plan
from perfmodel.report.explanation_text import explanation_text
from perfmodel.schema.evidence import COLLECTIVES
from perfmodel.schema.machine import load_machine
from perfmodel.schema.workload import UNIFORM, Table, TableSet, zipf
from perfmodel.units import format_fraction

Cli = Callable[..., Outcome]
GPUS, DOMAIN = 16, 8
QUESTIONS: list[dict[str, Any]] = [
    {"table_bytes": 10e12, "objective": "training", "payload": "fp16"},
    {"gpus": 64, "gpus_per_node": 4, "pooling": 4},
    {"gpus": 16, "backend": "nvshmem", "machine": "h200-sxm-ib"},
    {"gpus": 128, "backend": "best", "machine": "gb200-nvl72"},
    {"gpus": 32, "tables": "mlperf-dlrm-dcnv2"},
    {"gpus": 16, "machine": "l40s-pcie", "table_count": 10**5, "dim": 8},
    {"table_bytes": 10e12, "machine": load_machine("h100-sxm-ib").with_overrides({"nic_bytes_per_s": 1e11})},
]
SCHEMES = [
    *(Scheme(Exchange.DP), Scheme(Exchange.RB, 4, 2), Scheme(Exchange.RS, 16, 1)),
    *(Scheme(Exchange.RB, 4, 2, 1000), Scheme(Exchange.RB, 1, 2, 1000), Scheme(Exchange.SPARSE, 8, 1, 500)),
    *(Scheme(Exchange.TWO_LEVEL, 8, 1), Scheme(Exchange.TWO_LEVEL, 16, 1)),
    *(Scheme(Exchange.UB, 4, 2), Scheme(Exchange.UB, 4, 2, 1000)),
]
ROUNDED = {"max": np.fmax, "min": np.fmin, "ceil": np.ceil, "e": math.e}


def by_hand(formula: str, letters: dict[str, float]) -> float:
    """A formula as printed: letters side by side are multiplied; what is defined at its end comes first."""
    text, *defined = re.split(r", (?=\w+ = )", formula)
    values = {**ROUNDED, **{letter: np.float64(value) for letter, value in letters.items()}}
    for part in defined:
        name, _, meant = part.partition(" = ")
        if name not in letters:
            values[name] = np.float64(by_hand(meant, letters))
    written = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", text.replace("^", "**"))
    with np.errstate(all="ignore"):
        return float(eval(written, {"__builtins__": {}}, values))


def check(explanation: Explanation) -> None:
    """The equations give their values, these the time and the bytes, and the parts of the band the band."""
    step, meanings = explanation.step, dict[str, str]()
    for part in (*explanation.time, *explanation.load):
        letters = {name: to_float(value) for name, value in part.letters.items()}
        formula = read_formula(part.function)
        for letter in letters:
            meaning = formula.letters[letter]["meaning"]
            assert meanings.setdefault(letter, meaning) == meaning, (step.name, letter)
        value = by_hand(formula.text, letters)
        assert value == pytest.approx(to_float(part.value), rel=1e-9), part.function
    times = [to_float(explanation.time[0].value) * explanation.factor]
    times += [time_s for _, time_s in explanation.stages[-1:]]
    assert times == pytest.approx([step.time_s] * len(times), rel=1e-9), step.name
    sizes = [size for _, _, size in explanation.tables] or [step.payload_bytes]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == pytest.approx(step.payload_bytes, rel=1e-9), step.name
    terms = [part.times * to_float(part.value) for part in explanation.load if part.symbol == "S"]
    assert not terms or sum(terms) == pytest.approx(sizes[0], rel=1e-9), step.name
    above = [above for _, _, above in explanation.band]
    log_band = sum(above) if step.collective else math.hypot(*above)
    exact = 1e-6 if not step.collective else 1e-2  # which is read between two sizes of the grid
    assert math.log(step.high_s / step.time_s) >= log_band - exact, step.name
    assert step.collective or log_band == pytest.approx(math.log(step.high_s / step.time_s), abs=exact)
    assert explanation.sources and all(source for *_, source in explanation.sources)


def check_band_text(explanation: Explanation) -> None:
    """The ends of the band as printed, and what cuts it off."""
    step = explanation.step
    lines = [" ".join(line.split()) for line in explanation_text(explanation).splitlines()]
    ends = " ".join(format_fraction(end / step.time_s - 1) for end in (step.low_s, step.high_s))
    assert [line.endswith(f" {ends}") for line in lines if line.startswith("together: ")] == [True], step.name
    parts = [below for _, below, _ in explanation.band]
    whole, rate = (sum(parts), "links") if step.collective else (math.hypot(*parts), "memory")
    cut = math.exp(whole) * step.low_s / step.time_s - 1
    said = [f"cut off: no faster than the machine's rate of its {rate} +{format_fraction(cut)}"]
    assert [line for line in lines if line.startswith("cut off")] == (said if cut > 5e-4 else []), step.name


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda part: " ".join(map(str, part.values()))[:60])
def test_every_step_of_a_row_wise_projection(question: dict[str, Any]) -> None:
    answer = project_one(**question)
    explained = build_explained_pass(answer)
    for row in answer.steps:
        explanation = explained.explain(row.label)
        check(explanation)
        check_band_text(explanation)
        assert explanation.step == row and explanation.rank is None
        assert explanation.where.endswith(f" of {answer.setting.machine.name}")


@pytest.mark.parametrize("payload", [None, "fp16"])
@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_every_step_of_a_plan(scheme: Scheme, training: bool, payload: str | None) -> None:
    ids = zipf(1.05) if scheme.hot_rows else UNIFORM
    tables = PlanTables.of(TableSet("one", (Table("only", 1_000_000, 64, 20, "fp32"),)), ids)
    plan = Plan(tables, (Placement.of(scheme, np.arange(scheme.parts)),), GPUS, DOMAIN)
    evaluator = Evaluator.on("h100-sxm-ib", tables, 256, GPUS, payload=payload, training=training)
    costed = evaluator.cost(plan)
    explained = ExplainedPass.from_plan(costed)
    for row in costed.cost.rows:
        check(explained.explain(row.name))


def test_a_plan_names_the_busiest_gpu_and_its_tables() -> None:
    """GPU 0 has a and c, and a part of b: 20 and 60 look-ups of each sample, and an eighth of 40."""
    sizes = (Table(name, 5_000_000, 64, 20.0 * n, "fp32") for n, name in enumerate("abc", start=1))
    tables = PlanTables.of(TableSet("three", tuple(sizes)), UNIFORM)
    whole, cut = Placement.of(Scheme(Exchange.RB), [0]), Placement.of(Scheme(Exchange.RB, 4, 2), range(8))
    plan = Plan(tables, (whole, cut, whole), GPUS, DOMAIN)
    evaluator = Evaluator.on("h100-sxm-ib", tables, 256, GPUS)
    explanation = ExplainedPass.from_plan(evaluator.cost(plan)).explain("gather")
    check(explanation)
    assert explanation.rank == 0 and [name for name, *_ in explanation.tables] == ["c", "a", "b"]
    (looked_up,) = [part for part in explanation.load if part.symbol == "n"]
    assert looked_up.letters["L"] == 60 and to_float(looked_up.value) == GPUS * 256 * 60
    assert "GPU 0, the busiest: c " in explanation_text(explanation)
    many = replace(explanation, tables=tuple((f"t{n}", 1, 7.0 - n) for n in range(7)))
    assert "t4 3 B and 2 more; the equation is that of t0" in " ".join(explanation_text(many).split())


@pytest.mark.parametrize(
    ("machine", "backend"),
    [("h100-sxm-ib", "nccl"), ("h200-sxm-ib", "nvshmem"), ("gb200-nvl72", "nccl"), ("l40s-pcie", "nccl")],
)
def test_every_collective(machine: str, backend: str) -> None:
    """Of a measured cell, between cells and outside, and by the law in one domain and in several."""
    of = CollectiveModel.load(load_machine(machine), backend)
    measured = {curve.collective for curve in of.calibration.curves}
    for collective in (part for part in COLLECTIVES if part in measured):
        for gpus, node in ((2, 8), (6, 8), (8, 8), (20, 8), (100, 8), (16, 1)):
            for size in (2.0**11, 3e6, 2.0**31):
                if of.calibration.law(collective):
                    explanation = explain_collective(of, collective, size, gpus, node)
                    check(explanation)
                    assert explanation.step.time_s == float(of.estimate(collective, size, gpus, node).time_s)


def test_the_law_of_a_ring_and_its_correction_are_those_of_nccl() -> None:
    """128 GPUs in 16 nodes: 112 steps inside, 15 across; 80 GPUs were measured, from 32 MiB on."""
    machine = load_machine("h100-sxm-ib")
    calibration = CollectiveModel.load(machine).calibration.model_copy(update={"this_cluster": True})
    of = CollectiveModel(machine, calibration)
    explanation = explain_collective(of, "reduce_scatter", 2.0**24, 128, 8)
    parts = {part.symbol: part for part in explanation.time}
    assert list(parts) == ["t", "hops", "wire", "corr"]
    assert (parts["hops"].letters["m"], parts["hops"].letters["n"]) == (112, 15)
    corr = parts["corr"].letters
    assert parts["corr"].value == pytest.approx((corr["t_near"] / corr["law_near"]) ** corr["fade"])
    assert explanation.notes[-1] == "nearest measured cell: 32.0 MiB on 80 GPUs"
    stages = dict(explanation.stages)
    ratio = stages["corrected by measured cells"] / stages["law of the links"]
    assert to_float(parts["corr"].value) == pytest.approx(ratio, rel=1e-6)


ROW_WISE = "project --table-size 10TB --sharding row-wise"
OF_FILE, SEARCHED = (f"plan --model three.csv {more}" for more in ("--plan three.json", "--gpus 8"))


@pytest.mark.parametrize("words", ["project --gpus 16", f"{ROW_WISE} --set payload=fp16", OF_FILE, SEARCHED])
def test_the_steps_of_the_answer_are_those_that_are_explained(cli: Cli, words: str, three: None) -> None:
    shown = json.loads(cli(*words.split(), "--json").out)
    for step in shown["steps"]:
        name = step["name"].replace("_", "-")
        said = json.loads(cli(*words.split(), "--explain", name, "--json").out)
        keys = "schema_version command step where time load rank tables factor stages sources band notes"
        assert set(said) - {"sharding"} == set(keys.split()) and said["command"] == words.split()[0]
        assert said["step"]["time_s"] == step["time_s"]
        if words.startswith("project"):
            assert said["sharding"] == (shown.get("sharding") or "row-wise") and said["step"] == step


def test_a_part_of_a_name_and_factors_that_lead_to_the_printed_time(cli: Cli) -> None:
    """``scatter`` is in one name; 730 µs times each factor that is named is the 753 µs of the step."""
    text = " ".join(cli(*ROW_WISE.split(), "--explain", "scatter").out.split())
    assert text.startswith("reduce-scatter (bags) on 144 GPUs")
    (line,) = re.findall(r"([\d.]+) µs of the equation((?: × [\d.]+ \([^)]+\))+) = ([\d.]+) µs", text)
    factors = [float(factor) for factor in re.findall(r"× ([\d.]+) \(", line[1])]
    assert 1 not in factors and float(line[0]) * math.prod(factors) == pytest.approx(float(line[2]), rel=2e-3)
    assert "of the equation" not in cli(*ROW_WISE.split(), "--explain", "ids").out  # it is the time


@pytest.mark.parametrize("rate", ["2.5TB/s", "3.6TB/s"])
def test_a_band_that_the_memory_cuts_off_says_so(cli: Cli, rate: str) -> None:
    """HBM3 of an H100 has 3.35 TB/s: a gather at 3.6 TB/s cannot be still faster at its low end."""
    set_rate = f"--set gather_bytes_per_s={rate} --set accepted=gather_bytes_per_s"
    text = " ".join(cli(*ROW_WISE.split(), *set_rate.split(), "--explain", "gather").out.split())
    cut = re.search(r"no faster than the machine's rate of its memory \+[\d.]+ %", text)
    assert bool(cut) == (rate == "3.6TB/s")


@pytest.mark.parametrize(
    ("words", "label"),
    [
        ("project --model mlperf-dlrm-dcnv2 --gpus 128", "all-to-all (ids, table-row-wise)"),
        ("project --table-size 1TB --backend best --machine h200-sxm-ib", "all-to-all (ids, nccl)"),
    ],
)
def test_a_label_of_the_screen_is_explained(cli: Cli, words: str, label: str) -> None:
    assert f" {label} " in cli(*words.split()).out
    assert cli(*words.split(), "--explain", label).out.startswith("all-to-all (ids")


@pytest.mark.parametrize("sharding", ["row-wise", "table-wise"])
def test_tables_of_a_set_are_named(cli: Cli, sharding: str, three: None) -> None:
    """As in the file, in which b is not the second of the sorted kinds."""
    words = ("project", "--model", "three.csv", "--gpus", "8", "--sharding", sharding)
    tables = json.loads(cli(*words, "--explain", "gather", "--json").out)["tables"]
    assert {part["table"] for part in tables} <= set("abc") and tables[0]["table"] == "c"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{ROW_WISE} --explain teleport", "step 'teleport' is not known. known: all-to-all-ids, "),
        (f"{ROW_WISE} --explain gahter-pool", "did you mean gather-pool? known: "),
        (f"{ROW_WISE} --explain all-to-all", "means several steps"),
        (
            "project --gpus 16 --explain gather --sharding all",
            "--sharding all and --explain cannot be combined",
        ),
        (f"{OF_FILE} --explain update-rows", "step 'update-rows' is not known."),
        ("plan --model three.csv --gpus 8,16 --explain gather", "--explain is of one plan"),
        ("collective --op all_to_all --size 1GiB,2GiB --gpus 8 --explain", "these are 2 collectives"),
        ("collective --op all_to_all --size 1GiB --gpus 1 --explain", "sends nothing"),
    ],
)
def test_what_cannot_be_explained_is_refused(cli: Cli, words: str, said: str, three: None) -> None:
    done = cli(*words.split())
    assert done.code == BadInputError.exit_code and not done.out
    assert said in " ".join(done.err.split())


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of three tables, and of a plan of them on 8 GPUs."""
    monkeypatch.chdir(tmp_path)
    rows = "name,rows,dim,pooling\na,10000000,64,20\nb,5000,32,3\nc,40000000,128,10\n"
    Path("three.csv").write_text(rows, encoding="utf-8")
    kinds = Scheme(Exchange.RB, 4, 1), Scheme(Exchange.DP), Scheme(Exchange.UB, 8, 1, 1000)
    placed = tuple(Placement.of(kind, range(kind.parts)) for kind in kinds)
    write_plan(Plan(PlanTables.load("three.csv"), placed, 8, 8), Path("three.json"))


def test_every_equation_binds_its_letters_in_its_docstring() -> None:
    page = (Path(__file__).parents[2] / "docs" / "model.md").read_text(encoding="utf-8")
    words = (re.sub(r"[^a-z0-9 -]", "", line.lower()) for line in re.findall("^#+ (.*)$", page, re.M))
    headings = {line.replace(" ", "-") for line in words}
    rooms = (pkgutil.iter_modules(room.__path__, f"{room.__name__}.") for room in (model, engine))
    names = [module.name for room in rooms for module in room]
    members = [member for name in names for member in vars(importlib.import_module(name)).values()]
    code = equation(lambda: None).__code__
    functions = {member for member in members if getattr(member, "__code__", None) is code}
    assert len(functions) >= 35
    for function in functions:
        formula = read_formula(function)
        assert formula.text and formula.unit in UNITS, function
        for letter in inspect.signature(function).parameters:
            bound = formula.letters[letter]
            assert bound["meaning"] and bound["unit"] in UNITS, (function, letter)
        assert set(re.findall(r"docs/model.md#([\w-]+)", formula.source)) <= headings, function


def test_numbers_remember_their_equations_while_a_recording_is_on() -> None:
    rows = np.array([2.0, 8.0])
    assert not isinstance(exchanges.rows_bytes(rows, 4.0), Traced)
    with record_equations():
        rows_sent = exchanges.rows_bytes(exchanges.requested_rows(4, rows, 2.0), 4.0)
        lookups = exchanges.shard_lookups(1, 1, rows, 1)
        assert (rows_sent * 1).tolist() == [16.0, 64.0]
        assert [part.symbol for part in derive("S", rows_sent)] == ["S", "rows"]
        assert len((rows_sent + lookups).equations) == 2 and not (0 * rows_sent).equations
        assert np.where(True, rows_sent, lookups).equations == rows_sent.equations
        assert np.where(False, rows_sent, lookups)[:1].equations == lookups.equations
    assert to_float(rows_sent) == 16.0


def test_a_hand_over_whose_band_reaches_to_zero_has_its_part_too() -> None:
    """As in a noisy run of one's own: the low end is 0 s."""
    answer = project_one(table_bytes=1e12)
    step = replace(answer.steps[0], name=HANDOVER, low_s=0.0)
    explained = replace(build_explained_pass(answer), rows=(step, *answer.steps[1:]))
    ((_, below, _),) = explained.explain(HANDOVER).band
    assert below == pytest.approx(52 * math.log(2))
