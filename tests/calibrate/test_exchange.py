"""Whole passes on two gloo ranks, ours and TorchRec's: exact bags, all steps, the model's bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from waiting import PATIENCE_S

from calibrate.passes.exchange_pass import STEPS
from calibrate.ranks.team import RankTeam, TeamRequest, start_ranks
from perfmodel.errors import BadInputError
from perfmodel.model import exchanges as ex
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind

pytest.importorskip("torch")

WORKS = [
    (LookupWork(batch=16, tables=1, pooling=4, dim=8, rows=1000), "fp32"),
    (LookupWork(batch=33, tables=3, pooling=2.5, dim=12, rows=101), "fp32"),
    (LookupWork(batch=16, tables=2, pooling=0.5, dim=32, rows=64), "fp16"),
    (LookupWork(batch=64, tables=2, pooling=20, dim=16, rows=5000), "fp32"),
]


def point(ranks: int, work: LookupWork, dtype: str = "fp32", implementation: str = "exchange") -> Point:
    return Point(
        kind=PointKind.COMPOSED,
        operation="row_wise",
        backend="gloo",
        implementation=implementation,
        clock=Clock.EAGER,
        gpus=ranks,
        gpus_per_node=ranks,
        dtype=dtype,
        work=work,
    )


@pytest.fixture(scope="module")
def team() -> Iterator[RankTeam]:
    """Two ranks for all tests: to import torch takes them seconds."""
    request = TeamRequest(ranks=2, device="cpu", backends=("gloo",))
    with RankTeam(start_ranks(request), request) as started:
        yield started


def test_bags_are_exact_and_steps_add_up(team: RankTeam) -> None:
    ranks, everyone = 2, [0, 1]
    for salt, (work, dtype) in enumerate(WORKS):
        seen = team.visit(
            point(ranks, work, dtype), everyone, calls=4, round=0, salt=salt, deadline_s=PATIENCE_S
        )
        bags = work.batch * work.tables
        for times in seen:
            assert (times.wrong, times.checked) == (0, bags * work.dim)
            assert tuple(times.steps_s) == STEPS
            spent = np.subtract(times.ends_s, times.starts_s)
            steps = np.sum([times.steps_s[name] for name in STEPS], axis=0)
            assert np.all((steps > 0) & (steps <= spent))
        check_bytes(work, ranks, [times.bytes_sent for times in seen])
    with pytest.raises(BadInputError, match="rows over"):
        lost = work.model_copy(update={"rows": 1})
        team.visit(point(ranks, lost), everyone, calls=1, round=0, salt=0, deadline_s=PATIENCE_S)


def check_bytes(work: LookupWork, G: int, sent: list[int]) -> None:
    """What the model counts, less what stays on the rank: 1/G of all but the ids, and the ids it owns."""
    bags = work.batch * work.tables
    counted = [ex.splits_bytes(G, 3, 8), ex.lengths_bytes(G, bags, 8)]
    counted.append(ex.bags_sent_bytes(G, bags, 1, work.dim * 4))
    away = float(sum(counted)) * (G - 1) / G
    ids = float(ex.ids_bytes(round(bags * work.pooling), 8))
    assert all(away <= each <= away + ids for each in sent)
