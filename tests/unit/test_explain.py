"""Explanations: every symbol defined, the working adds up, and a name means one step."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from perfmodel.errors import BadInputError
from perfmodel.passes.equations import equation_of, source_of
from perfmodel.passes.step_names import ALIASES, find_step
from perfmodel.passes.steps import STEPS, step_label
from perfmodel.plan.explain_step import explain_step
from perfmodel.projections import project_one
from perfmodel.units import parse_time

QUESTIONS: list[dict[str, Any]] = [
    {"table_bytes": 10e12, "reserve": 0},
    {"gpus": 8},
    {"gpus": 6},
    {"table_bytes": 10e12, "reserve": 0, "scenario": "nvlink-everywhere"},
    {"gpus": 64, "reduction": "two_level", "gpus_per_node": 4},
    {"gpus": 64, "reduction": "sparse", "pooling": 4},
    {"gpus": 16, "backend": "nvshmem", "machine": "h200-sxm-ib"},
    {"gpus": 128, "backend": "best", "machine": "gb200-nvl72"},
    {"gpus": 32, "tables": "mlperf-dlrm-dcnv2"},
    {"gpus": 16, "machine": "l40s-pcie"},
]
_WORDS = {
    "t",
    "min_k",
    "max",
    "min",
    "ceil",
    "bytes",
    "s",
    "the",
    "measured",
    "model",
    "rho(u)",
    "ln",
    "mean",
}


@pytest.mark.parametrize("options", QUESTIONS, ids=lambda o: " ".join(f"{v}" for v in o.values()))
def test_every_symbol_is_defined(options: dict[str, Any]) -> None:
    answer = project_one(**options)
    for step in answer.steps:
        found = explain_step(answer, step.name)
        symbols = {part for term in found.terms for part in re.findall(r"[A-Za-z_0-9]+", term.symbol)}
        written = f"{found.equation}\n{re.sub('sum over the .* there of', '', found.payload_equation)}"
        used = set(re.findall(r"[A-Za-z_][A-Za-z_0-9]*", written)) - _WORDS
        assert used <= symbols, (step.name, used - symbols)


def value_of(found: Any, symbol: str) -> float:
    return float(next(term.value for term in found.terms if term.symbol == symbol))


def test_the_bytes_add_up() -> None:
    for options in QUESTIONS:
        if "tables" in options:
            continue
        answer = project_one(**options)
        gather = explain_step(answer, "gather")
        n, r, ids, bags, o = (value_of(gather, s) for s in ("n", "r", "id", "bags", "o"))
        assert n * (r + ids) + bags * o == pytest.approx(gather.step.payload_bytes)
        assert value_of(gather, "dram_bytes") == gather.step.payload_bytes


def test_no_step_is_compared_with_a_whole_batch() -> None:
    answer = project_one(**QUESTIONS[0], objective="training")
    words = " ".join(line for step in answer.steps for line in explain_step(answer, step.name).working)
    assert "local memory" not in words


def test_the_latency_of_a_ring_adds_up() -> None:
    found = explain_step(project_one(table_bytes=10e12, gpus=128, reserve=0), "reduce-scatter")
    names = ("hops_k", "base_k", "m", "inside_k", "n", "network_k")
    hops, base, m, inside, n, across = (value_of(found, name) for name in names)
    assert (m, n) == (112, 15)
    assert m * inside + n * across == pytest.approx(hops)
    assert "hops_k = m × inside_k + n × network_k = 112 × " in "\n".join(found.working)
    taken_of = next(line for line in found.working if line.startswith("taken: ")).split(";")[0]
    assert sorted(re.findall(r"ring (\w+)", taken_of)) == ["LL", "LL128", "Simple"], taken_of
    moved = found.step.payload_bytes * value_of(found, "f") / value_of(found, "bandwidth_k")
    q = value_of(found, "q")
    taken = base + (hops**q + moved**q) ** (1 / q)
    name = next(term.text for term in found.terms if term.symbol == "k")
    assert taken == pytest.approx(value_of(found, f"t({name})"))
    match = re.match(r"t = law (.*) × correction ([\d.]+) = ", found.working[-1])
    assert match is not None
    assert taken == pytest.approx(parse_time(match.group(1)), rel=0.1)  # corners are rounded


def test_why_a_slower_protocol_is_taken_and_what_the_law_makes_of_all() -> None:
    """NCCL's table expects the least of what is taken; the mean that is printed is the law's time."""
    answer = project_one(table_bytes=5e12, machine="h200-sxm-ib", gpus=64)
    found = explain_step(answer, "reduce-scatter")
    taken, expected, mean = (
        each for each in found.working if re.match("taken|NCCL takes|these are close", each)
    )
    name = taken.split()[2]
    known = re.findall(r"ring (LL128|LL|Simple) ([\d.]+ .s)", expected)
    assert len(known) == 3 and min(known, key=lambda each: parse_time(each[1]))[0] == name
    parts = re.findall(r"([\d.]+) % × ([\d.]+ .s)", mean)
    assert {text for _, text in parts[1:]} <= set(re.findall(r"[\d.]+ .s", taken))
    times = [(float(share) / 100, parse_time(text)) for share, text in parts]
    said = parse_time(mean.rsplit(" = ", 1)[1])
    assert sum(share * time_s for share, time_s in times) == pytest.approx(said, rel=0.01)
    assert mean.rsplit(" = ", 1)[1] in found.working[-1]


def test_the_floor_of_an_exchange_adds_up() -> None:
    found = explain_step(project_one(table_bytes=10e12, gpus=128, reserve=0), "ids")
    alpha, a0, a1, c, b, a2 = (value_of(found, name) for name in ("alpha", "a0", "a1", "c", "b", "a2"))
    assert a0 + 7 * a1 + c + 8 * b + 120 * a2 == pytest.approx(alpha)  # 15 other nodes: one round
    working = "\n".join(found.working)
    assert "R × (c + b × min(g, P))" in working
    assert "R = ceil((N - 1) × ceil(g / P) / C)" in working
    assert (value_of(found, "R"), value_of(found, "N")) == (1, 16) and value_of(found, "C") >= 15
    u, half, rho = (value_of(found, name) for name in ("u", "u_half", "rho"))
    assert (u, rho) == (2**18 / 128, pytest.approx(u / (u + half)))
    line = found.working[-1]
    match = re.match(r"t = law (.*) × correction ([\d.]+) = (.*?): ", line)
    if match is None:  # the correction is 1: nothing to show
        assert line.startswith("t = ")
        return
    law, ratio, total = match.groups()
    assert parse_time(law) * float(ratio) == pytest.approx(parse_time(total), rel=0.01)


@pytest.mark.parametrize("options", QUESTIONS[:4])
def test_terms_are_as_sure_as_the_step(options: dict[str, Any]) -> None:
    answer = project_one(**options)
    for step in answer.steps:
        if step.collective and "scenario" not in options:
            terms = explain_step(answer, step.name).terms
            fitted = [t for t in terms if "(" in t.text or t.symbol in ("t_a", "t_b")]  # or between cells
            assert fitted and {t.evidence for t in fitted} == {str(step.evidence)}


def test_two_levels_are_explained_with_their_own_groups() -> None:
    answer = project_one(gpus=64, reduction="two_level", machine="h200-sxm-ib")
    inside, across = (explain_step(answer, f"reduce-scatter-{where}") for where in ("inside", "across"))
    assert across.payload_equation == "domains × B × elements × v"
    assert value_of(across, "domains") == 8
    assert "8 GPUs" in inside.working[-1]  # a measured cell
    assert (value_of(across, "g"), value_of(across, "N")) == (1, 8)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("reduce-scatter", "reduce_scatter_bags"),
        ("Reduce_Scatter_Bags", "reduce_scatter_bags"),
        ("bags", "reduce_scatter_bags"),
        ("all-to-all (ids)", "all_to_all_ids"),
        ("all-to-all-l", "all_to_all_lengths"),
        ("buck", "bucketize"),
    ],
)
def test_names_that_mean_one_step(name: str, step: str) -> None:
    assert find_step(project_one(table_bytes=10e12, reserve=0).steps, name).name == step


def test_a_step_is_typed_as_it_is_read_and_by_its_old_names() -> None:
    """The label of every step, with hyphens for other signs, is its name; no two steps share an alias."""
    row = project_one(table_bytes=10e12, reserve=0).steps[0]
    every = tuple(replace(row, name=name, label=step_label(name)) for name in STEPS)
    for step in every:
        assert find_step(every, step.label) == step
        assert re.sub("[^a-z0-9]+", "_", step.label.lower()).strip("_") == step.name
    for alias, names in ALIASES.items():
        assert alias not in STEPS and {*names} <= STEPS.keys(), alias
        assert find_step(every, alias).name == names[0]
    for old, name in (
        ("all-to-all (indices)", "all_to_all_ids"),
        ("deduplicate indices", "deduplicate"),
        ("all-to-all (unique rows)", "all_to_all_rows"),
        ("reduce-scatter (inside a domain)", "reduce_scatter_inside"),
        ("waits between steps", "handover"),
    ):
        assert find_step(every, old).name == name


def test_of_two_exchanges_bags_are_the_one_that_runs() -> None:
    answer = project_one(gpus=64, backend="best", machine="h200-sxm-ib")
    assert find_step(answer.steps, "bags").name in {"reduce_scatter_bags", "all_to_all_bags"}


@pytest.mark.parametrize("name", ["", " ", "-", "a", "s", "teleport", "scatter", "bags-of", "o"])
def test_names_of_no_step(name: str) -> None:
    with pytest.raises(BadInputError, match="not a step") as caught:
        find_step(project_one(table_bytes=10e12, reserve=0).steps, name)
    assert "gather-pool" in caught.value.next_step


def test_a_name_of_several_steps() -> None:
    with pytest.raises(BadInputError, match="several steps") as caught:
        find_step(project_one(table_bytes=10e12, reserve=0).steps, "all-to-all")
    assert "all-to-all-splits, all-to-all-lengths, all-to-all-ids" in caught.value.next_step


def test_equation_and_source_are_those_lines_of_a_docstring() -> None:
    def ring(payload: float) -> None:
        """A ring.

            t = a
              + b           [s]

        payload  bytes

            not this one

        Source: somebody, a journal,
          volume 3
        Limits: nothing
          of this
        """

    def bare() -> None:
        """No formula, and nobody's."""

    assert (equation_of(ring), source_of(ring)) == ("t = a\n+ b [s]", "somebody, a journal, volume 3")
    assert (equation_of(bare), source_of(bare)) == ("", "")


@pytest.mark.parametrize("rows", [8, 9])
def test_a_gather_of_as_many_rows_as_gpus_adds_up(rows: int) -> None:
    """Eight rows on eight GPUs are cut, one each: a bag has a part on each of them."""
    answer = project_one(table_bytes=rows * 64 * 4, dim=64, gpus=8, batch=64, pooling=2, reserve=0)
    gather = explain_step(answer, "gather")
    n, r, ids, bags, o = (value_of(gather, s) for s in ("n", "r", "id", "bags", "o"))
    assert n * (r + ids) + bags * o == pytest.approx(gather.step.payload_bytes)
    assert bags == 64 * 8


def test_one_gpu_is_not_each_of_one(cli: Any) -> None:
    text = cli("explain", "gather", "--table-size", "10GB", "--gpus", "1").out
    assert "on 1 GPU of" in text and "1 GPUs" not in text
