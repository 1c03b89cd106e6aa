"""All figures behind an answer: which there are, of which data, and which are missing."""

from __future__ import annotations

from pathlib import Path

import own_run
import plotly.graph_objects as go
import pytest

from perfmodel.answer import Answer, project_one
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.evidence_figures import evidence_blocks
from perfmodel.schema.machine import read_machine

NAMES = [
    "collectives-all-to-all", "collectives-reduce-scatter", "libraries", "links", "roofline", "changes",
    "heat-map", "validation",
]  # fmt: skip


@pytest.fixture(scope="module")
def plain() -> dict[str, Block | Missing]:
    """Those of the default answer."""
    return blocks(project_one(table_bytes=10e12))


def blocks(asked: Answer) -> dict[str, Block | Missing]:
    return {found.name: found for found in evidence_blocks(asked)}


def test_every_figure_of_the_default_answer_is_there(plain: dict[str, Block | Missing]) -> None:
    assert list(plain) == NAMES
    for name, block in plain.items():
        assert isinstance(block, Block), block
        assert block.title.endswith(".") and block.source and block.how_to_read and block.data, name
        assert all(isinstance(v, str | int | float | None) for row in block.data for v in row.values()), name
        assert len(block.figure.to_json()) < 600_000  # 943 points of node counts left out
        go.Figure(block.figure.to_dict())  # checked by plotly
    own, links = plain["collectives-all-to-all"], plain["links"]
    assert isinstance(own, Block) and {row["calibration"] for row in own.data} == {
        "h100-sxm-ib/nccl-2.29.2-stream"
    }
    assert isinstance(links, Block) and "rtx-pro-6000-pcie" in links.title and "h100-sxm-ib" in links.title


def test_curves_on_other_numbers_of_gpus_are_there_to_choose(plain: dict[str, Block | Missing]) -> None:
    for name in ("collectives-all-to-all", "collectives-reduce-scatter", "libraries"):
        block = plain[name]
        assert isinstance(block, Block)
        assert [block.choice, *(other.choice for other in block.others)] == ["8 GPUs", "2 GPUs", "4 GPUs"]
        for each in (block, *block.others):
            assert each.name == name and f"on {each.choice}" in each.title
            assert {f"{row['gpus']} GPUs" for row in each.data} == {each.choice}
    links = plain["links"]
    assert isinstance(links, Block) and links.others == ()


def test_on_one_gpu_what_hangs_on_several_is_missing() -> None:
    found = blocks(project_one(table_bytes=1e9, gpus=1))
    missing = [name for name, block in found.items() if isinstance(block, Missing)]
    assert missing == ["changes", "heat-map"] and list(found) == NAMES


def test_an_own_run_shows_its_own_samples(tmp_path: Path) -> None:
    folder = own_run.write_run(tmp_path / "four-cores-01234567")
    path = next(iter(folder.glob("mpi*.json")))
    asked = project_one(
        None, read_machine(folder / "machine.toml"), backend="mpi", calibration=path, table_bytes=1e8, gpus=2
    )
    found = blocks(asked)
    curves, roof, passes = (found[name] for name in ("collectives-all-to-all", "roofline", "validation"))
    assert isinstance(curves, Block) and curves.title.startswith("All-to-all on 4 GPUs")
    assert isinstance(roof, Block) and "32 gathers timed on it" in roof.source
    assert isinstance(passes, Block) and "Of 3 points" in passes.title
    links = found["links"]
    assert isinstance(links, Block) and "h100-sxm-ib" in links.title and "rtx-pro-6000-pcie" in links.title


def test_changed_values_leave_the_measured_curves_alone(plain: dict[str, Block | Missing]) -> None:
    changed = blocks(project_one(table_bytes=10e12, overrides={"nvlink_bytes_per_s": 4.5e12}))
    for name in NAMES[:4]:
        first, second = changed[name], plain[name]
        assert isinstance(first, Block) and isinstance(second, Block)
        assert (first.data, first.title) == (second.data, second.title)
    assert changed["changes"] != plain["changes"]
