"""A copied machine file with a name of its own and another memory: kernels are not left as they were."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfmodel.answer import project_one
from perfmodel.collectives.estimate import predict_collectives
from perfmodel.errors import BadInputError
from perfmodel.schema.machine import list_machines, load_machine, machine_file

NAME = "h100-sxm-ib"
FOLLOW = ("gather_bytes_per_s", "bucketize_bytes_per_s", "local_sum_bytes_per_s")


def own_file(tmp_path: Path, values: dict[str, float], name: str = "mine", like: bool = True) -> str:
    """A copy of the shipped file under another name, with other values."""
    text = machine_file(NAME).replace(f'name = "{NAME}"', f'name = "{name}"', 1)
    text = text if like else text.replace(f'like = "{NAME}"\n', "")
    for key, value in values.items():
        text, count = re.subn(rf"(\[values.{key}\]\nvalue = )\S+", rf"\g<1>{value}", text)
        assert count == 1
    path = tmp_path / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


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
    said = refused.value.message.split(": not what a memory")[0]
    assert [key for key in FOLLOW if key in said] == ([*FOLLOW] if like else [FOLLOW[i] for i in faster])
    assert all((key in str(refused.value.next_step)) is like for key in FOLLOW)


def test_what_the_refusal_says_to_write_is_the_what_if(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        load_machine(own_file(tmp_path, {"hbm_bytes_per_s": 1.5e12}))
    written = re.findall(r"\[values.(\w+)\] value = (\S+?)(?:;|$)", str(refused.value.next_step))
    values = {key: float(value) for key, value in written}
    assert values.keys() == set(FOLLOW)
    mended = own_file(tmp_path, {"hbm_bytes_per_s": 1.5e12, **values})
    own = project_one(table_bytes=1e12, machine=mended)
    what_if = project_one(table_bytes=1e12, machine=NAME, overrides={"hbm_bytes_per_s": 1.5e12})
    gathers = [step.time_s for x in (own, what_if) for step in x.steps if step.name == "gather_pool"]
    assert gathers[0] == pytest.approx(gathers[1], rel=1e-3)


def test_what_is_the_users_own_is_not_doubted(tmp_path: Path) -> None:
    """Another value; another source; the same memory; a file of measured values that is like no other."""
    own = {"gather_bytes_per_s": 3e12, "bucketize_bytes_per_s": 2e12, "local_sum_bytes_per_s": 6e12}
    for values in ({"hbm_bytes_per_s": 6.7e12, **own}, {"nic_bytes_per_s": 25e9}):
        assert load_machine(own_file(tmp_path, values)).name == "mine"
    path = Path(own_file(tmp_path, {"hbm_bytes_per_s": 1.5e12}, like=False))
    text = path.read_text(encoding="utf-8")
    before, rate, after = text.partition("[values.hbm_bytes_per_s]")
    path.write_text(before + rate + after.replace('"datasheet"', '"measured"', 1), encoding="utf-8")
    assert load_machine(path).value("gather_bytes_per_s") > 1.5e12


@pytest.mark.parametrize("name", list_machines())
def test_shipped_kernels_are_slower_than_their_memory(name: str) -> None:
    machine = load_machine(name)
    assert all(machine.value(key) < machine.value("hbm_bytes_per_s") for key in FOLLOW)


@pytest.mark.parametrize(
    ("key", "value", "gpus"), [("nic_bytes_per_s", 25e9, 152), ("nvlink_bytes_per_s", 225e9, 8)]
)
def test_collectives_of_a_copy_follow_its_links(tmp_path: Path, key: str, value: float, gpus: int) -> None:
    """With a name of its own the measured times are transferred, and rescaled as by ``--set``."""
    asked = {"collective": ["all_to_all", "reduce_scatter"], "payload_bytes": [2**30] * 2, "gpus": [gpus] * 2}
    own = predict_collectives(asked, machine=own_file(tmp_path, {key: value}))
    what_if = predict_collectives(asked, machine=NAME, overrides={key: value})
    assert own["time_s"].tolist() == pytest.approx(what_if["time_s"].tolist())
    assert set(own["evidence"]) == {"transferred"}
    assert (own["time_s"] > 1.4 * predict_collectives(asked, machine=NAME)["time_s"]).all()


def test_a_changed_copy_needs_a_name_of_its_own(tmp_path: Path) -> None:
    """Else two machines would give two answers under one name; an unchanged copy is the same."""
    path = own_file(tmp_path, {"nic_bytes_per_s": 100e9}, name=NAME)
    with pytest.raises(BadInputError, match=r"the values are not: nic_bytes_per_s\.") as refused:
        load_machine(path)
    assert f'links.like = "{NAME}"' in refused.value.next_step
    assert load_machine(own_file(tmp_path, {}, name=NAME)).values == load_machine(NAME).values
