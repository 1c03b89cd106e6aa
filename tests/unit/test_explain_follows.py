"""``explain`` explains the pass that ``project`` answers with: its sharding, its steps, its numbers."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from perfmodel.passes.step_names import find_step
from perfmodel.plan.explain_step import explain_step
from perfmodel.projections import project_one

MANY = "--table-size 10TB --tables 300 --dim 128 --pooling 20 --machine h200-sxm-ib"


def pasted(text: str) -> list[str]:
    """The words of the last command in a text, which may go on over lines."""
    lines = text.replace(" \\\n", "").splitlines()
    line = next(line for line in reversed(lines) if "perfmodel explain" in line)
    return shlex.split(line[line.index("perfmodel explain") :])[1:]


@pytest.mark.parametrize("options", ["--table-size 10TB", MANY, f"{MANY} --sharding row-wise", "--gpus 1"])
def test_every_step_that_project_prints_is_explained_with_its_numbers(cli: Any, options: str) -> None:
    """By its name in the document and by its label on the screen, with nothing more to type."""
    shown = json.loads(cli("project", *options.split(), "--json").out)
    for step in shown["steps"]:
        for name in (step["name"].replace("_", "-"), step["label"]):
            done = cli("explain", name, *options.split(), "--json")
            assert done.code == 0, done.err
            said = json.loads(done.out)
            assert said["step"] == step
            assert said["sharding"] == (shown.get("sharding") or "row-wise")
    whole = json.loads(cli("explain", "slowdown", *options.split(), "--json").out)
    numbers = {each["key"]: each["value"] for each in whole["numbers"]}
    assert numbers["time_s"] == pytest.approx(shown["time_s"], rel=1e-12)


def test_the_command_of_the_longest_step_is_on_the_screen_and_runs(cli: Any) -> None:
    for options in ("--table-size 10TB", "--table-size 10TB --sharding row-wise", "--table-size 60GB", MANY):
        shown = cli("project", *options.split())
        steps = json.loads(cli("project", *options.split(), "--json").out)["steps"]
        longest = max(steps, key=lambda step: step["time_s"])
        words = pasted(shown.out)
        assert words[1] == longest["name"].replace("_", "-")
        assert json.loads(cli(*words, "--json").out)["step"] == longest


@pytest.mark.parametrize(
    ("asked", "has"),
    [
        (f"reduce-scatter {MANY} --gpus 152", "row-wise"),
        ("reduce-scatter-inside --table-size 10TB --gpus 152", "row-wise-two-level"),
        (f"rows {MANY} --gpus 128", "row-wise-ub"),
        ("deduplicate --table-size 10TB", "row-wise-ub"),
    ],
)
def test_a_step_of_another_sharding_alone_is_refused_with_that_sharding(
    cli: Any, asked: str, has: str
) -> None:
    refused = cli("explain", *asked.split())
    assert refused.code == 2 and f"{has} has it:" in refused.err
    words = pasted(refused.err)
    assert words[-2:] == ["--sharding", has]
    done = cli(*words, "--json")
    assert done.code == 0 and json.loads(done.out)["sharding"] == has


def test_a_step_of_no_sharding_is_refused_with_the_steps(cli: Any) -> None:
    refused = cli("explain", "teleport", "--table-size", "10TB")
    assert refused.code == 2 and "bucketize" in refused.err and "has it" not in refused.err


def test_equal_tables_are_one_equation_however_many() -> None:
    """More of them than could be dealt one by one; T multiplies what each has."""
    answer = project_one(table_bytes=10e12, table_count=100_000, dim=8)
    for step in answer.steps:
        found = explain_step(answer, step.name)
        value = {term.symbol: term.value for term in found.terms}
        assert found.step == step and value["S"] == step.payload_bytes
        if step.name == "all_to_all_ids":
            assert found.payload_equation == "T × B × L × id_bytes"
            assert value["T"] * value["B"] * value["L"] * value["id_bytes"] == step.payload_bytes


def test_of_unlike_tables_those_that_are_cut_are_added_up() -> None:
    """Four of the 26 have fewer rows than there are GPUs: copies send no ids."""
    answer = project_one(tables="mlperf-dlrm-dcnv2", gpus=16)
    small = sum(float(group.count) for group in answer.work.groups if float(group.rows) < 16)
    found = explain_step(answer, "ids")
    assert found.payload_equation == f"sum over the {26 - small:.0f} tables there of ( B × L × id_bytes )"
    assert find_step(answer.steps, "ids") == found.step


@pytest.mark.parametrize(("optimizer", "moved"), [("none", 256), ("rowwise-adagrad", 264), ("adam", 768)])
def test_an_update_is_explained_in_its_own_words(cli: Any, optimizer: str, moved: int) -> None:
    """A row of 32 fp32 elements and its state, read and written: of Adam 2 × 32 × (4 + 8) bytes."""
    options = ("--table-size", "1TB", "--objective", "training", "--optimizer", optimizer)
    options = (*options, "--sharding", "row-wise")
    said = json.loads(cli("explain", "update-rows", *options, "--json").out)
    terms = {term["symbol"]: term["meaning"] for term in said["terms"]}
    values = {term["symbol"]: term["value"] for term in said["terms"]}
    assert said["title"].startswith(f"update rows with {optimizer} on ")
    assert values["o"] == moved and "optimizer's state" in terms["o"] and "gradients" in terms["n_g"]
    assert not {"n", "bags", "beta_bag"} & set(terms)
    assert any("constants are those of gather + pool" in line for line in said["working"])


def test_rows_and_their_gradients_have_one_form(cli: Any) -> None:
    """What a rank asks for comes to it, and its gradient goes back: U rows of D elements each."""
    options = ("--table-size", "10TB", "--objective", "training", "--sharding", "ub", "--json")
    forms = [
        json.loads(cli("explain", step, *options).out)["payload_equation"]
        for step in ("all-to-all-rows", "all-to-all-row-gradients")
    ]
    assert forms == ["U × D × w", "U × D × v"]
