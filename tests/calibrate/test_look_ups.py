"""The paper's look-ups on four gloo ranks by every implementation: bags are right, and a wrong one shows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE_S

torch = pytest.importorskip("torch")

from oracles.kernels.exchange import row_wise  # noqa: E402
from torch.distributed import HashStore  # noqa: E402

from calibrate.cuda import launch  # noqa: E402
from calibrate.cuda.exchange_memory import METHODS  # noqa: E402
from calibrate.cuda.row_wise_exchange import choose_access, kernels  # noqa: E402
from calibrate.cuda.symmetric_worlds import SharedWorld  # noqa: E402
from calibrate.operations import Place  # noqa: E402
from calibrate.passes.one_sided_pass import OneSidedPass  # noqa: E402
from calibrate.planning.measurement_plan import Request, make_plan  # noqa: E402
from calibrate.providers import describe  # noqa: E402
from calibrate.ranks.launch import LOCALHOST, listen, serve_store  # noqa: E402
from calibrate.ranks.team import RankTeam, TeamRequest, start_ranks  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402
from perfmodel.schema.evidence import Clock  # noqa: E402
from perfmodel.schema.runs import LookupWork, Point, PointKind  # noqa: E402

STAGES = {
    "exchange": {"bucketize", "all_to_all_splits", "all_to_all_lengths", "all_to_all_ids", "permute",
                 "gather_pool", "reduce_scatter"},
    "three": {"permute", "gather", "reduce"},
    "fused": {"permute", "fused"},
    "torchrec": set[str](),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def home(kernel_home: Path) -> Iterator[None]:
    """Where the kernels are built to, before the ranks that load them start."""
    if not describe("one_sided").usable:
        pytest.skip(f"one-sided look-ups: {describe('one_sided').why_not}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        for method in METHODS:
            for dim in (12, 32):
                built = kernels("fp32", choose_access(dim, "fp32", 16), method=method)
                launch.prebuild(list(built.values()), torch.device("cpu"))
        yield


@pytest.fixture(scope="module")
def team(home: None) -> Iterator[RankTeam]:
    request = TeamRequest(4, "cpu", ("gloo",), oversubscribe=True)
    with RankTeam(start_ranks(request), request) as ranks:
        yield ranks


@pytest.mark.parametrize("implementation", list(STAGES))
def test_every_implementation_on_1_2_and_4_ranks(implementation: str, team: RankTeam) -> None:
    """The points of the plan whose works are smallest, as a calibration visits them."""
    if not team.world().providers.get(implementation, describe("one_sided")).usable:
        pytest.skip(f"{implementation} is not installed")
    request = Request("quick", only=[f"passes:{implementation}"], grid="paper", oversubscribe=True)
    points = make_plan(request, team.world()).points
    least = min(point.work.batch * point.work.pooling for point in points if point.work)
    small = [p for p in points if p.work and p.work.batch * p.work.pooling == least]
    assert {point.gpus for point in small} == {1, 2, 4}
    for salt, point in enumerate(small):
        assert point.work is not None
        seen = team.visit(point, range(point.gpus), 2, 0, salt, PATIENCE_S)
        for rank in seen:
            assert (rank.wrong, rank.checked) == (0, point.work.batch * point.work.tables * point.work.dim)
            assert set(rank.steps_s) == (STAGES[implementation] if point.clock is Clock.EAGER else set())
            assert rank.bytes_sent > 0 or point.gpus == 1


@pytest.mark.parametrize("method", ["three", "fused"])
def test_bags_are_those_of_numpy_and_a_wrong_one_shows(method: str) -> None:
    work = LookupWork(batch=5, tables=3, pooling=2.5, dim=12, rows=40)
    point = Point(
        kind=PointKind.LOOKUP,
        operation="row_wise",
        implementation=method,
        clock=Clock.EAGER,
        work=work,
        gpus=1,
        gpus_per_node=1,
    )
    provider = OneSidedPass()
    listening = listen(LOCALHOST, 0)
    address = {"host": LOCALHOST, "port": str(listening.getsockname()[1]), "run": f"look{method}"}
    served = serve_store(listening, "job")
    provider.open(Place(0, 1), address)
    provider.open_group([0])
    operation = provider.operation(point, [0])
    for salt in range(2):  # the second exchange has the memory of the first
        operation.prepare(salt)
        operation.before()
        operation.run()
        tables = [operation._table.rows[40 * table :][:40].numpy() for table in range(3)]
        asked = [(operation._ids.numpy(), operation._lengths.numpy())]
        (expected,) = row_wise([tables], asked, (40, 40, 40))
        assert np.array_equal(operation._bags.numpy(), expected)
        operation._bags[salt, 0, 0] += salt
        assert operation.check() == (salt, 5 * 3 * 12)
    provider.close()
    del served  # the store


def test_shared_memory_is_a_gigabyte_of_each_rank() -> None:
    world = SharedWorld(HashStore(), 0, 1)
    assert world.allocate(100).memory.tolist() == [0] * 100
    with pytest.raises(BadInputError, match="do not fit the shared memory"):
        world.allocate(2**30)


def test_ranks_of_one_node_listen_on_loopback_alone(team: RankTeam) -> None:
    """The store of rank 0, and the sockets of gloo: no other machine can connect to them."""
    processes = [os.getpid(), *(hello["pid"] for hello in team.hellos)]
    links = set()
    for path in (path for pid in processes for path in Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # the folder that is being read
            links.add(os.readlink(path))
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    heard = {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in links}
    assert heard and {address.partition(":")[0] for address in heard} == {"0100007F"}, heard
