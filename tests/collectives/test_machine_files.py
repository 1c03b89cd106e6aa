"""A copied machine file has a name of its own, and rates that its memory gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from perfmodel import resources
from perfmodel.answer import project_one
from perfmodel.collectives.estimate import predict_collectives
from perfmodel.errors import BadInputError
from perfmodel.schema.machine import load_machine, machine_file

NAME = "h100-sxm-ib"
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


def test_a_changed_copy_that_kept_its_name_is_refused(tmp_path: Path) -> None:
    """Its answers would be called those of the shipped machine; an unchanged copy is that machine."""
    path = own_file(tmp_path, {"nic_bytes_per_s": 100e9}, NAME)
    with pytest.raises(BadInputError, match=r"the values are not\.") as refused:
        load_machine(path)
    assert f'links.like = "{NAME}"' in refused.value.next_step
    assert load_machine(own_file(tmp_path, {}, NAME)).values == load_machine(NAME).values


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
    with pytest.raises(BadInputError, match="is not modelled") as refused:
        load_machine(gpu)
    name, *values = refused.value.next_step.partition("--machine ")[2].split(" --set ")
    changed = load_machine(name).with_overrides(dict(value.split("=", 1) for value in values))
    assert len(changed.overrides) == len(values) > 0
