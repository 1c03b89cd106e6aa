"""A copied machine file: with the shipped name it is a what-if; with its own, shipped rates are doubted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called

from perfmodel import resources
from perfmodel.answer import project_one
from perfmodel.collectives.estimate import predict_collectives
from perfmodel.errors import BadInputError
from perfmodel.schema.machine import beside_shipped, load_machine, machine_file

NAME = "h100-sxm-ib"
SET = {"nic_bytes_per_s": 100e9, "hbm_bytes_per_s": 4.8e12}
FOLLOW = ("gather_bytes_per_s", "bucketize_bytes_per_s", "local_sum_bytes_per_s")


def own_file(tmp_path: Path, values: dict[str, float], name: str = "mine", like: bool = True) -> str:
    """A copy of the shipped file under another name, or under its own, with other values."""
    if name == NAME:
        text = resources.data_path("machines", f"{NAME}.toml").read_text(encoding="utf-8")
    else:
        text = machine_file(NAME).replace(f'name = "{NAME}"', f'name = "{name}"', 1)
    text = text if like else text.replace(f'like = "{NAME}"\n', "")
    for key, value in values.items():
        text, count = re.subn(rf"(\[values.{key}\]\nvalue = )\S+", rf"\g<1>{value}", text)
        assert count == 1
    path = tmp_path / "machine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_copy_under_the_shipped_name_is_answered_as_the_same_what_if(tmp_path: Path) -> None:
    copied = own_file(tmp_path, SET, NAME)
    more = {"nvlink_bytes_per_s": 900e9}
    own, both = (project_one(table_bytes=1e12, machine=copied, overrides=o) for o in ({}, more))
    plain = project_one(table_bytes=1e12, machine=NAME)
    assert own.time_s == project_one(table_bytes=1e12, machine=NAME, overrides=SET).time_s < plain.time_s
    assert both.time_s == project_one(table_bytes=1e12, machine=NAME, overrides={**SET, **more}).time_s
    (note,) = [note for note in own.notes if "machine file" in note]
    assert "nic_bytes_per_s 100 GB/s and not 50 GB/s" in note and "rescaled" in note
    assert own.question is not None and both.question is not None
    assert "--set" not in own.question.list_arguments(copied)
    assert both.question.list_arguments(copied)[-2:] == ["--set", "nvlink_bytes_per_s=900GB/s"]
    words = ("collective", "--op", "all_to_all", "--size", "1GiB", "--gpus", "16", "--json")
    done = called(*words, "--machine", copied)
    question = {"collective": ["all_to_all"], "payload_bytes": [2**30], "gpus": [16]}
    mine, shipped = (predict_collectives(question, machine=name)["time_s"][0] for name in (copied, NAME))
    assert mine < 0.6 * shipped and f'"time_s": {mine}' in done.out and "rescaled" in done.err


@pytest.mark.parametrize("name", [NAME, "mine"])
def test_an_unchanged_copy_and_another_name_are_no_what_if(tmp_path: Path, name: str) -> None:
    machine = load_machine(own_file(tmp_path, {"nic_bytes_per_s": 100e9} if name != NAME else {}, name))
    assert beside_shipped(machine) is machine


def test_an_own_calibration_was_measured_on_the_file_as_it_is(tmp_path: Path) -> None:
    """Samples of the very machine of the file are not rescaled from the shipped values."""
    copied, log, out = own_file(tmp_path, SET, NAME), tmp_path / "a2a.csv", str(tmp_path / "mine.json")
    rows = "\n".join(
        f"all_to_all,{gpus},{size},{20e-6 + size / 80e9}"
        for gpus in (2, 8, 16)
        for size in (2**16, 2**20, 2**24, 2**28)
    )
    log.write_text(f"collective,gpus,payload_bytes,time_s\n{rows}\n", encoding="utf-8")
    made = called("import", str(log), "--machine", copied, "--set", "gpus_per_node=8", "--out", out)
    assert made.code == 0, made.err
    words = ("collective", "--op", "all_to_all", "--size", "256MiB", "--gpus", "16", "--json")
    done = called(*words, "--machine", copied, "--calibration", out)
    assert done.code == 0 and "rescaled" not in done.err
    (time,) = re.findall(r'^ *"time_s": (\S+?),$', done.out, re.MULTILINE)[:1]
    assert float(time) == pytest.approx(20e-6 + 2**28 / 80e9, rel=0.02)


@pytest.mark.parametrize(("rate", "faster"), [(1.5e12, (0, 2)), (2.4e12, (2,)), (6.7e12, ())])
@pytest.mark.parametrize("like", [True, False])
def test_kernels_of_another_memory_are_refused(
    tmp_path: Path, rate: float, faster: tuple[int, ...], like: bool
) -> None:
    """Faster than the memory; in a copy all that were left as they were, with the same part of the memory."""
    path = own_file(tmp_path, {"hbm_bytes_per_s": rate}, like=like)
    if not like and not faster:
        assert load_machine(path).value("hbm_bytes_per_s") == rate
        return
    with pytest.raises(BadInputError) as refused:
        load_machine(path)
    rates = refused.value.message.split(": not what a memory")[0]
    assert [key for key in FOLLOW if key in rates] == ([*FOLLOW] if like else [FOLLOW[i] for i in faster])
    assert all((key in refused.value.next_step) is like for key in FOLLOW)


def test_what_the_refusal_says_to_write_is_the_what_if(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        load_machine(own_file(tmp_path, {"hbm_bytes_per_s": 1.5e12}))
    written = re.findall(r"\[values.(\w+)\] value = (\S+?)(?:;|$)", refused.value.next_step)
    values = {key: float(value) for key, value in written}
    assert set(values) == set(FOLLOW)
    own = project_one(table_bytes=1e12, machine=own_file(tmp_path, {"hbm_bytes_per_s": 1.5e12, **values}))
    what_if = project_one(table_bytes=1e12, machine=NAME, overrides={"hbm_bytes_per_s": 1.5e12})
    gathers = [step.time_s for a in (own, what_if) for step in a.steps if step.name == "gather_pool"]
    assert gathers[0] == pytest.approx(gathers[1], rel=1e-3)


def test_what_is_the_users_own_is_not_doubted(tmp_path: Path) -> None:
    """Another value; another source; the same memory; a file of measured values that is like no other."""
    own = {"gather_bytes_per_s": 3e12, "bucketize_bytes_per_s": 2e12, "local_sum_bytes_per_s": 6e12}
    for values in ({"hbm_bytes_per_s": 6.7e12, **own}, {"nic_bytes_per_s": 25e9}):
        assert load_machine(own_file(tmp_path, values)).name == "mine"
    path = Path(own_file(tmp_path, {"hbm_bytes_per_s": 1.5e12}, like=False))
    before, rate, after = path.read_text(encoding="utf-8").partition("[values.hbm_bytes_per_s]")
    path.write_text(before + rate + after.replace('"datasheet"', '"measured"', 1), encoding="utf-8")
    assert load_machine(str(path)).value("gather_bytes_per_s") > 1.5e12


@pytest.mark.parametrize(
    ("key", "value", "gpus"), [("nic_bytes_per_s", 25e9, 152), ("nvlink_bytes_per_s", 225e9, 8)]
)
def test_collectives_of_a_copy_follow_its_links(tmp_path: Path, key: str, value: float, gpus: int) -> None:
    """With a name of its own the measured times are transferred, and rescaled as by ``--set``."""
    question: dict[str, Any] = {"collective": ["all_to_all", "reduce_scatter"], "payload_bytes": [2**30] * 2}
    question["gpus"] = [gpus] * 2
    own = predict_collectives(question, machine=own_file(tmp_path, {key: value}))
    what_if = predict_collectives(question, machine=NAME, overrides={key: value})
    assert own["time_s"].tolist() == pytest.approx(what_if["time_s"].tolist())
    assert set(own["evidence"]) == {"transferred"}
    assert (own["time_s"] > 1.4 * predict_collectives(question, machine=NAME)["time_s"]).all()


@pytest.mark.parametrize("gpu", ["h20", "H20-SXM", "h800", "mi300x"])
def test_a_gpu_that_is_known_and_not_modelled_says_the_nearest_and_what_to_set(gpu: str) -> None:
    """``h20`` is no ``h200``; what is to be typed is a machine that is."""
    with pytest.raises(BadInputError, match="is known and not modelled") as refused:
        load_machine(gpu)
    name, *values = refused.value.next_step.partition("--machine ")[2].split(" --set ")
    changed = load_machine(name).with_overrides(dict(value.split("=", 1) for value in values))
    assert len(changed.overrides) == len(values) > 0
