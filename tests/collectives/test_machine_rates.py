"""A copied machine file with a name of its own and another memory: kernels are not left as they were."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(("rate", "faster"), [(1.5e12, (0, 2)), (2.4e12, (2,))])
@pytest.mark.parametrize("like", [True, False])
def test_kernels_faster_than_the_memory_are_refused(
    tmp_path: Path, rate: float, faster: tuple[int, ...], like: bool
) -> None:
    path = own_file(tmp_path, {"hbm_bytes_per_s": rate}, like=like)
    with pytest.raises(BadInputError) as refused:
        load_machine(path)
    said = refused.value.message.split(": more than the memory gives")[0]
    assert [key for key in FOLLOW if key in said] == [FOLLOW[i] for i in faster]
    hint = str(refused.value.next_step)
    assert "hbm_bytes_per_s" in hint
    assert all((key in hint) is like for key in FOLLOW)  # all of them are to be scaled, not these alone


def test_what_the_refusal_says_to_write_is_the_what_if(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        load_machine(own_file(tmp_path, {"hbm_bytes_per_s": 1.5e12}))
    written = re.findall(r"\[values.(\w+)\] value = (\S+?)(?:;|$)", str(refused.value.next_step))
    values = {key: float(value) for key, value in written}
    assert tuple(values) == ("gather_bytes_per_s", "local_sum_bytes_per_s", "bucketize_bytes_per_s")
    mended = own_file(tmp_path, {"hbm_bytes_per_s": 1.5e12, **values})
    own = project_one(table_bytes=1e12, machine=mended)
    what_if = project_one(table_bytes=1e12, machine=NAME, overrides={"hbm_bytes_per_s": 1.5e12})
    gathers = [step.time_s for found in (own, what_if) for step in found.steps if step.name == "gather_pool"]
    assert gathers[0] == pytest.approx(gathers[1], rel=1e-3)
    assert not any("of another" in note or "--set gather" in note for note in own.notes)


def test_rates_of_another_memory_are_said(tmp_path: Path, cli: Any) -> None:
    path = own_file(tmp_path, {"hbm_bytes_per_s": 6.7e12})
    (said,) = [note for note in project_one(table_bytes=1e12, machine=path).notes if "--set" in note]
    assert f"those of {NAME}" in said and "hbm_bytes_per_s = 6.70 TB/s" in said
    typed = re.findall(r"--set \S+", said)
    assert typed == [f"--set {key}={2 * load_machine(NAME).value(key):g}" for key in FOLLOW]
    words = [word for each in typed for word in each.split()]
    done = cli("project", "--table-size", "1TB", "--machine", path, *words)
    assert done.code == 0 and "those of" not in done.err
    done = cli("project", "--table-size", "1TB", "--machine", path, *words[:2])
    assert "--set bucketize_bytes_per_s=" in done.err and "--set gather" not in done.err


def test_what_is_the_users_own_is_not_doubted(tmp_path: Path) -> None:
    """Another value; another source; the same memory; a file of measured values that is like no other."""
    own = {"gather_bytes_per_s": 3e12, "bucketize_bytes_per_s": 2e12, "local_sum_bytes_per_s": 6e12}
    for values in ({"hbm_bytes_per_s": 6.7e12, **own}, {"nic_bytes_per_s": 25e9}):
        found = project_one(table_bytes=1e12, machine=own_file(tmp_path, values))
        assert not any("--set" in note for note in found.notes)
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
