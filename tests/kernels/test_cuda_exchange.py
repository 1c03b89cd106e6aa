"""The one-sided row-wise exchange on threads that play PEs, on the CPU that stands in for a GPU."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from oracles.kernels.exchange import Lookup, embed, measure_errors  # noqa: E402
from oracles.thread_world import ThreadWorld, make_worlds, run_threads  # noqa: E402
from recorded import assert_recorded  # noqa: E402

from calibrate.cuda import exchange_memory, row_wise_exchange  # noqa: E402
from calibrate.cuda import kernel_launch as launching  # noqa: E402
from calibrate.cuda.cache import Kernel  # noqa: E402
from calibrate.cuda.exchange_memory import METHODS, ExchangeArguments, Sizes  # noqa: E402
from calibrate.cuda.gather_layout import choose_width  # noqa: E402
from calibrate.cuda.row_wise_exchange import RowWiseExchange, choose_access  # noqa: E402
from calibrate.planning.kernel_cells import ELEMENT_BYTES  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402

CPU = torch.device("cpu")
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


def poison(exchange: Any) -> None:
    """All symmetric memory but the flags."""
    memory = exchange._memory
    begin = int(memory.exchange.landed_offsets) - memory.region.memory.data_ptr()
    memory.region.memory[begin:].fill_(0xA5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(str(x).replace(" ", "") for x in case))
def test_bags_equal_the_reference(case: Any, seed: int) -> None:
    """In whatever order threads run."""
    ranks, *sizes = case
    launching.cpu_order(kernels()[0], seed % 100)
    lookup = Lookup(*sizes, seed=seed)
    for errors in run_threads(ranks, lambda world: measure_errors(world, [lookup], poison, part_bags=4), CPU):
        assert not isinstance(errors, Exception), errors
        assert len(errors) == 4 and max(errors.values()) < 1, errors


@pytest.mark.parametrize("stage_all", [False, True], ids=["mapped", "staged"])
def test_blocks_that_run_side_by_side(stage_all: bool, seed: int) -> None:
    """Three threads of a rank share the tickets of one fused launch, as blocks of a GPU do."""
    lookup = Lookup((40, 30), 12, 20, 9, seed=seed)

    def work(world: ThreadWorld) -> float:
        exchange = lookup.make_exchange(world, part_bags=3, stage_all=stage_all)
        memory, (ids, lengths) = exchange._memory, lookup.draw(world.rank, 0)
        (bags,) = exchange._list_bags_kernels()
        wanted, errors = embed(lookup.make_tables(), ids, lengths), []
        for _ in range(5):
            out = torch.full((20, 2, 12), torch.nan)
            torch.cumsum(lengths, 0, out=memory.offsets[1:])
            exchange._push(ids, 20)
            arguments = [memory.exchange, ctypes.c_int32(20), out]
            given = bags, CPU, 2, 64, arguments, exchange._launches.shared_bytes
            threads = [threading.Thread(target=launching.launch, args=given) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            exchange.raise_faults()
            errors.append(float((out - wanted).abs().max()))
        return max(errors)

    assert all(error < 1e-4 for error in run_threads(2, work, CPU))


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_memory_is_as_large_as_calls_need(method: str, staged: bool) -> None:
    def work(world: ThreadWorld) -> list[int]:
        exchange = Lookup((40, 31), 12, 21, 9).make_exchange(world, method, stage_all=staged, blocks=5)
        memory = exchange._memory
        base, kept = memory.region.memory.data_ptr(), list(memory._kept.values())[1:]
        values = [int(getattr(memory.exchange, name)) for name, _ in ExchangeArguments._fields_]
        places = [value - base for value in values[7:15]]  # in the region of all ranks
        tensors = memory.region.memory, memory.offsets, *kept
        lengths = exchange_memory._list_lengths(exchange._sizes, 3, 5, staged).values()
        return [*places, *values[15:], *(tensor.numel() for tensor in tensors), *lengths]

    assert_recorded(f"memory of an exchange {method} {staged}", *run_threads(3, work, CPU)[1])


def test_exchanges_that_are_too_large_too_small_or_of_other_tables() -> None:
    (world,) = make_worlds(1, CPU)
    refused = {
        "sizes of an exchange": [
            ((), 4, 2, 20),
            ((9, 0), 4, 2, 20),
            ((9,), 0, 2, 20),
            ((9,), 4, 2, 2**31 - 8),
        ],
        "puts of -1 bags": [((9,), 4, 2, 20, "fused", -1)],
        "puts to each of 1 ranks are too many": [((9,), 4, 2**29, 20, "fused", 1)],
        "holds .9. rows of .4. columns": [((8,), 4, 2, 20), ((9,), 3, 2, 20)],
    }
    for words, cases in refused.items():
        for sizes in cases:
            with pytest.raises(BadInputError, match=words):
                RowWiseExchange(world, [torch.ones(9, 4)], Sizes(*sizes), patience_s=0.5)
    for patience_s in (0, 20):
        with pytest.raises(BadInputError, match=f"cannot wait {patience_s} s"):
            RowWiseExchange(world, [torch.ones(9, 4)], Sizes((9,), 4, 2, 20), patience_s=patience_s)


@pytest.mark.parametrize("method", ["fused", "three"])
def test_ids_out_of_range_add_nothing_and_are_reported(method: str) -> None:
    lengths = torch.tensor([3, 3])
    good, bad = torch.tensor([0, 9, 5, 5, 0, 1]), torch.tensor([0, 9, 10, 6, -1, 5])

    def work(world: ThreadWorld) -> Any:
        held = [torch.ones(5, 4), torch.ones(3, 4)]
        exchange = RowWiseExchange(world, held, Sizes((10, 6), 4, 1, 6, method=method))
        out = torch.full((1, 2, 4), torch.nan)
        with pytest.raises(BadInputError, match=r"3 ids are outside their tables, the first at position 2"):
            exchange.run(bad, lengths, out)
        return out[0, :, 0].tolist(), exchange.run(good, lengths)[0, :, 0].tolist()

    assert run_threads(2, work, CPU) == [([2, 1], [3, 3])] * 2


def make_alone(rows: int) -> Any:
    (world,) = make_worlds(1, CPU)
    return RowWiseExchange(world, [torch.ones(rows, 4)], Sizes((rows,), 4, 2, 20))


def test_ids_that_are_no_rows_of_the_rank_that_gets_them_are_reported() -> None:
    """Another rank that splits its tables otherwise: here a rank itself believes in 20 rows, and holds 10."""
    exchange = make_alone(10)
    exchange._memory._kept["splits"].fill_(20)
    out = torch.full((2, 1, 4), torch.nan)
    with pytest.raises(BadInputError, match=r"2 ids that rank 0 received are not rows of this rank"):
        exchange.run(torch.tensor([3, 10, 9, 19]), torch.tensor([2, 2]), out)
    assert out[:, 0, 0].tolist() == [1, 1]


def test_ranks_must_mean_the_same() -> None:
    def work(world: ThreadWorld) -> Any:
        RowWiseExchange(world, [torch.ones(5, 4)], Sizes((10,), 4, 2, 20 + world.rank))

    for error in run_threads(2, work, CPU):
        assert isinstance(error, BadInputError) and "make another exchange" in str(error)


@pytest.mark.parametrize(
    ("ids", "lengths", "match"),
    [
        (torch.arange(3), torch.tensor([1, 1]), r"lengths add up to 2"),
        (torch.arange(3), torch.tensor([4, -1]), r"the least is -1"),
        (torch.arange(3).int(), torch.tensor([1, 2]), r"3 ids of torch.int32"),
        (torch.arange(21), torch.tensor([1, 20]), r"21 ids"),
        (torch.arange(3), torch.tensor([1, 1, 1]), r"3 lengths"),
        (torch.arange(6)[::2], torch.tensor([1, 2]), r"3 ids of torch.int64 on cpu"),
        (torch.arange(3, device="meta"), torch.tensor([1, 2]), r"on meta and 2 lengths do not fit"),
        (torch.arange(3), torch.tensor([1, 2], device="meta"), r"2 lengths do not fit"),
    ],
)
def test_calls_that_do_not_fit(ids: Any, lengths: Any, match: str) -> None:
    with pytest.raises(BadInputError, match=match):
        make_alone(40).run(ids, lengths)


@pytest.mark.parametrize(
    ("method", "tables", "batch", "dim", "bags"),
    [
        ("fused", 64, 4096, 128, 16),  # 8 KiB of 512 B
        ("fused", 1, 128, 32, 8),  # 16 parts of 1 KiB
        ("fused", 1, 12_800, 1, 200),  # 64 parts
        ("fused", 1, 128, 1, 128),  # 512 B of 4 B
        ("three", 64, 4096, 128, 512),  # 256 KiB
    ],
)
def test_bags_of_one_put(method: str, tables: int, batch: int, dim: int, bags: int) -> None:
    assert Sizes((9,) * tables, dim, batch, 1, method=method).bags_a_part == bags
