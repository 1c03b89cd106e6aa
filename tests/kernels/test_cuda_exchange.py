"""The one-sided row-wise exchange on threads that play PEs, on the CPU that stands in for a GPU."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from oracles.kernels import exchange as reference  # noqa: E402
from oracles.thread_world import ThreadWorld, threads_of  # noqa: E402

from calibrate.cuda import launch as launching  # noqa: E402
from calibrate.cuda import row_wise_exchange  # noqa: E402
from calibrate.cuda.cache import Kernel  # noqa: E402
from calibrate.cuda.device_tables import ELEMENT_BYTES  # noqa: E402
from calibrate.cuda.exchange_memory import METHODS, Sizes, divide_rows  # noqa: E402
from calibrate.cuda.gather_layout import choose_width  # noqa: E402
from calibrate.cuda.row_wise_exchange import RowWiseExchange, choose_access  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402

CPU = torch.device("cpu")
TYPES = {"fp32": torch.float32, "fp16": torch.float16}
POISON = 0xA5
Batch = tuple[Any, Any]

CASES = [  # ranks, rows of each table, D, batch, most ids a bag, type of rows
    (1, (50,), 4, 3, 5, "fp32"),
    (2, (101, 7, 50), 12, 7, 8, "fp32"),
    (3, (40, 41), 33, 5, 3, "fp32"),
    (4, (3, 1, 200), 8, 9, 20, "fp32"),  # ranks that hold no row of a table
    (4, (30, 30), 64, 6, 4, "fp16"),
    (3, (30, 29), 7, 6, 40, "fp16"),
    (5, (1,), 1, 1, 3, "fp32"),
    (2, (9, 9), 136, 4, 0, "fp32"),  # bags of nothing; two accesses of a lane to a row
    (3, (20, 11, 7), 300, 3, 6, "fp32"),  # rows in two pieces
    (2, (20, 11, 7), 6, 5, 6, "fp16"),  # accesses of 4 bytes
]


def kernels() -> list[Kernel]:
    """Kernels of every case, and those of the other tests: 4 columns of fp32."""
    made = set[Kernel]()
    for dtype, dim in {(dtype, dim) for _, _, dim, _, _, dtype in CASES}:
        access = choose_access(dim, dtype, choose_width(dim * ELEMENT_BYTES[dtype]))
        for method in METHODS:
            made |= set(row_wise_exchange.kernels(dtype, access, method=method).values())
    return sorted(made)


pytestmark = pytest.mark.usefixtures("built")


def on_ranks(ranks: int, work: Callable[[ThreadWorld], Any]) -> list[Any]:
    """What ``work`` gave or raised on each rank."""
    answers: list[Any] = [None] * ranks

    def one(world: ThreadWorld) -> None:
        try:
            answers[world.rank] = work(world)
        except Exception as error:
            answers[world.rank] = error

    threads = [threading.Thread(target=one, args=(world,)) for world in threads_of(ranks, CPU)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def tables(rng: np.random.Generator, rows: Sequence[int], dim: int, dtype: str) -> list[Any]:
    return [
        torch.from_numpy(rng.standard_normal((count, dim)).astype(np.float32)).to(TYPES[dtype])
        for count in rows
    ]


def part(whole: Sequence[Any], rank: int, ranks: int) -> list[Any]:
    """The rows of a rank, in memory of their own; one row of nothing where it has none."""
    blocks = divide_rows([len(table) for table in whole], ranks)
    held = [table[rank * block :][:block] for table, block in zip(whole, blocks, strict=True)]
    return [
        mine.clone() if len(mine) else torch.full((1, whole[0].shape[1]), torch.nan, dtype=mine.dtype)
        for mine in held
    ]


def batches(rng: np.random.Generator, rows: Sequence[int], batch: int, most: int, ranks: int) -> list[Batch]:
    """Ids and lengths of each rank: 0 .. most a bag."""
    made = []
    for _ in range(ranks):
        lengths = rng.integers(0, most + 1, len(rows) * batch)
        of_id = np.repeat(np.repeat(rows, batch), lengths)
        ids = (rng.random(len(of_id)) * of_id).astype(np.int64)
        made.append((torch.from_numpy(ids), torch.from_numpy(lengths)))
    return made


def want(whole: Sequence[Any], asked: Sequence[Batch], ranks: int) -> list[Any]:
    held = [[table.float().numpy() for table in part(whole, rank, ranks)] for rank in range(ranks)]
    return reference.row_wise(
        held, [(i.numpy(), n.numpy()) for i, n in asked], [len(table) for table in whole]
    )


def symmetric(exchange: RowWiseExchange, name: str) -> Any:
    """The exchange's symmetric memory from one of its parts on, bytes."""
    memory = exchange._memory
    at = int(getattr(memory.exchange, name))
    return memory.region.memory[at - memory.region.memory.data_ptr() :]


def poison(exchange: RowWiseExchange) -> None:
    """All symmetric memory but the flags."""
    symmetric(exchange, "landed_offsets").fill_(POISON)


def allowed(asked: Sequence[Batch], ranks: int) -> float:
    """Of fp32 sums of values of order 1."""
    longest = max(int(lengths.max()) for _, lengths in asked)
    return (longest + ranks) ** 1.5 * 2.0**-22 + 1e-30


@pytest.mark.parametrize("stage_all", [False, True], ids=["mapped", "staged"])
@pytest.mark.parametrize("method", ["fused", "three"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(str(x).replace(" ", "") for x in case))
def test_bags_equal_the_reference(case: Any, method: str, stage_all: bool, rng: np.random.Generator) -> None:
    ranks, rows, dim, batch, most, dtype = case
    whole = tables(rng, rows, dim, dtype)
    sizes = Sizes(rows, dim, batch, len(rows) * batch * max(most, 1), method=method, part_bags=4)
    calls = [batches(rng, rows, max(batch - call, 1), most, ranks) for call in range(3)]
    launching.cpu_order(kernels()[0], int(rng.integers(0, 100)))

    def work(world: ThreadWorld) -> list[Any]:
        exchange = RowWiseExchange(world, part(whole, world.rank, ranks), sizes, stage_all=stage_all)
        poison(exchange)
        world.agree("poisoned")
        seen = []
        for asked in calls:
            ids, lengths = asked[world.rank]
            guarded = torch.full((lengths.numel() * dim + 64,), -7.0)
            inside = guarded[32:-32].view(-1, len(rows), dim)
            exchange.run(ids, lengths, inside.fill_(torch.nan))
            assert torch.all(guarded[:32] == -7) and torch.all(guarded[-32:] == -7)
            seen.append(inside.numpy())
        return seen

    answers = on_ranks(ranks, work)
    for call, asked in enumerate(calls):
        for rank, right in enumerate(want(whole, asked, ranks)):
            assert not isinstance(answers[rank], Exception), answers[rank]
            assert np.abs(answers[rank][call] - right).max() <= allowed(asked, ranks), (rank, call)


@pytest.mark.parametrize(
    ("ranks", "rows", "batch", "most"), [(3, (40, 5), 30, 6), (2, (9,), 5, 70), (4, (2, 90), 1, 9)]
)
def test_what_is_pushed_is_what_the_reference_pushes(
    ranks: int, rows: Any, batch: int, most: int, rng: np.random.Generator
) -> None:
    """Ids in the order of their bags and places, as rows of the owner; offsets of all bags."""
    whole, asked = tables(rng, rows, 4, "fp32"), batches(rng, rows, batch, most, ranks)
    sizes = Sizes(rows, 4, batch, len(rows) * batch * most)

    def work(world: ThreadWorld) -> Any:
        exchange = RowWiseExchange(world, part(whole, world.rank, ranks), sizes)
        exchange.run(*asked[world.rank])
        made = exchange._memory.exchange
        words, bags = int(made.words), len(rows) * batch
        heads = symmetric(exchange, "landed_offsets").numpy()[: 4 * ranks * words].view(np.int32)
        offsets = heads.reshape(ranks, words)[:, 4 : 5 + bags]
        ids = symmetric(exchange, "landed_ids").numpy()[: 8 * ranks * int(made.capacity)]
        landed = ids.view(np.int64).reshape(ranks, -1)
        return [(offsets[asker], landed[asker, : offsets[asker, -1]]) for asker in range(ranks)]

    answers = on_ranks(ranks, work)
    for asker, (ids, lengths) in enumerate(asked):
        sent, offsets, _ = reference.pushed(ids.numpy(), lengths.numpy(), rows, ranks)
        for owner in range(ranks):
            assert np.array_equal(answers[owner][asker][0], offsets[owner])
            assert np.array_equal(answers[owner][asker][1], sent[owner])


@pytest.mark.parametrize("stage_all", [False, True], ids=["mapped", "staged"])
def test_blocks_that_run_side_by_side(stage_all: bool, rng: np.random.Generator) -> None:
    """Three threads of a rank share the tickets of one fused launch, as blocks of a GPU do."""
    rows, batch, ranks = (40, 30), 20, 2
    whole, asked = tables(rng, rows, 12, "fp32"), batches(rng, rows, batch, 9, ranks)
    sizes = Sizes(rows, 12, batch, len(rows) * batch * 9, part_bags=3)

    def work(world: ThreadWorld) -> Any:
        exchange = RowWiseExchange(world, part(whole, world.rank, ranks), sizes, stage_all=stage_all)
        memory, (ids, lengths) = exchange._memory, asked[world.rank]
        (bags,) = exchange._list_bags_kernels()
        seen = []
        for _ in range(5):
            out = torch.full((batch, len(rows), 12), torch.nan)
            torch.cumsum(lengths, 0, out=memory.offsets[1:])
            exchange._push(ids, batch)
            arguments = [memory.exchange, ctypes.c_int32(batch), out]
            given = bags, CPU, 2, 64, arguments, exchange._launches.shared_bytes
            threads = [threading.Thread(target=launching.launch, args=given) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            exchange.raise_faults()
            seen.append(out.numpy())
        return seen

    for answers, right in zip(on_ranks(ranks, work), want(whole, asked, ranks), strict=True):
        assert not isinstance(answers, Exception), answers
        assert max(np.abs(seen - right).max() for seen in answers) < 1e-4


@pytest.mark.parametrize("method", ["fused", "three"])
def test_ids_out_of_range_add_nothing_and_are_reported(method: str) -> None:
    whole = [torch.ones(10, 4), torch.ones(6, 4)]
    sizes = Sizes((10, 6), 4, 1, 6, method=method)
    lengths = torch.tensor([3, 3])
    good, bad = torch.tensor([0, 9, 5, 5, 0, 1]), torch.tensor([0, 10, 9, 6, -1, 5])

    def work(world: ThreadWorld) -> Any:
        exchange = RowWiseExchange(world, part(whole, world.rank, 2), sizes)
        out = torch.full((1, 2, 4), torch.nan)
        with pytest.raises(BadInputError, match=r"3 ids are outside their tables, the first at position 1"):
            exchange.run(bad, lengths, out)
        return out[0, :, 0].tolist(), exchange.run(good, lengths)[0, :, 0].tolist()

    assert on_ranks(2, work) == [([2, 1], [3, 3])] * 2


def test_ids_that_are_no_rows_of_the_rank_that_gets_them_are_reported() -> None:
    """Another rank that splits its tables otherwise: here a rank itself believes in 20 rows, and holds 10."""
    (world,) = threads_of(1, CPU)
    exchange = RowWiseExchange(world, [torch.ones(10, 4)], Sizes((10,), 4, 2, 20))
    exchange._memory._kept["splits"].fill_(20)
    out = torch.full((2, 1, 4), torch.nan)
    with pytest.raises(BadInputError, match=r"2 ids that rank 0 received are not rows of this rank"):
        exchange.run(torch.tensor([3, 10, 9, 19]), torch.tensor([2, 2]), out)
    assert out[:, 0, 0].tolist() == [1, 1]


def test_ranks_must_mean_the_same() -> None:
    def work(world: ThreadWorld) -> Any:
        RowWiseExchange(world, [torch.ones(5, 4)], Sizes((10,), 4, 2, 20 + world.rank))

    for error in on_ranks(2, work):
        assert isinstance(error, BadInputError) and "make another exchange" in str(error)


@pytest.mark.parametrize(
    ("ids", "lengths", "match"),
    [
        (torch.arange(3), torch.tensor([1, 1]), r"lengths add up to 2"),
        (torch.arange(3), torch.tensor([4, -1]), r"the least is -1"),
        (torch.arange(3).int(), torch.tensor([1, 2]), r"3 ids of torch.int32"),
        (torch.arange(21), torch.tensor([1, 20]), r"21 ids"),
        (torch.arange(3), torch.tensor([1, 1, 1]), r"3 lengths"),
    ],
)
def test_calls_that_do_not_fit(ids: Any, lengths: Any, match: str) -> None:
    (world,) = threads_of(1, CPU)
    exchange = RowWiseExchange(world, [torch.ones(40, 4)], Sizes((40,), 4, 2, 20))
    with pytest.raises(BadInputError, match=match):
        exchange.run(ids, lengths)


@pytest.mark.parametrize(
    ("method", "tables", "batch", "dim", "bags"),
    [
        ("fused", 64, 4096, 128, 16),  # 8 KiB of 512 B
        ("fused", 64, 4096, 32, 64),  # 8 KiB of 128 B
        ("fused", 1, 128, 32, 8),  # 16 parts of 1 KiB
        ("fused", 1, 128, 256, 8),
        ("fused", 1, 12_800, 1, 200),  # 64 parts
        ("fused", 1, 128, 1, 128),  # 512 B of 4 B
        ("three", 64, 4096, 128, 512),  # 256 KiB
        ("three", 1, 128, 128, 128),
    ],
)
def test_bags_of_one_put(method: str, tables: int, batch: int, dim: int, bags: int) -> None:
    assert Sizes((9,) * tables, dim, batch, 1, method=method).bags_a_part == bags
