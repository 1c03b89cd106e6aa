"""The ranks of test_torchrec.py: our passes, TorchRec's and torch's embedding_bag on the same random rows.

python torchrec_ranks.py RANKS PORT: each rank prints one JSON line, the largest error of each case against
sums in double precision, as a share of what rounding allows (below 1: equal).
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import warnings
from typing import Any

import torch
from forked_ranks import forked, meeting

from calibrate.cuda.exchange_memory import METHODS, Sizes, block_rows
from calibrate.cuda.row_wise_exchange import RowWiseExchange
from calibrate.cuda.symmetric_worlds import SharedWorld
from calibrate.operations import Place
from calibrate.passes.exchange_pass import Job, PassBuffers, forward
from calibrate.passes.torchrec_pass import TorchRec, features, local_shards, row_wise_module
from calibrate.ranks.launch import join_store
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind

ROWS, DIM, BATCH = 101, 12, 7  # 101 rows: the last rank owns fewer
CASES = [
    {"name": f"{dtype}-{lengths}", "dtype": dtype, "lengths": lengths}
    for dtype in ("fp32", "fp16")
    for lengths in ("even", "uneven", "empty")
]
HALF, SINGLE = 2.0**-11, 2.0**-24
"""Largest relative error of rounding one number to fp16 and to fp32."""


def batch(case: dict[str, Any], tables: int, rank: int) -> tuple[Any, Any]:
    """ids, lengths of this rank: 3 ids a bag, or 0 to 8, or none at all on even ranks."""
    generator = torch.Generator().manual_seed(10 + rank)
    lengths = torch.full((tables * BATCH,), 3)
    if case["lengths"] != "even":
        lengths = torch.randint(0, 9, lengths.shape, generator=generator)
    if case["lengths"] == "empty":
        lengths[::2] = 0
        lengths *= rank % 2
    count = int(lengths.sum())
    ids = torch.randint(0, ROWS, (count,), generator=generator)
    return ids, lengths


def truth(tables: list[Any], ids: Any, lengths: Any) -> Any:
    """Bags in double precision [T B, D], through torch's embedding_bag on the whole tables."""
    counts = lengths.view(len(tables), BATCH).sum(1).tolist()
    bags = []
    for table, rows, sizes in zip(tables, ids.split(counts), lengths.view(-1, BATCH), strict=True):
        offsets = sizes.cumsum(0) - sizes
        bags.append(torch.nn.functional.embedding_bag(rows, table.double(), offsets, mode="sum"))
    return torch.cat(bags)


def one_sided(world: SharedWorld, tables: list[Any], ids: Any, lengths: Any) -> list[Any]:
    """Bags of the one-sided look-ups [T B, D], by each method."""
    blocks = block_rows([ROWS] * len(tables), world.ranks)
    held = [table[world.rank * block :][:block].clone() for table, block in zip(tables, blocks, strict=True)]
    made = []
    for method in METHODS:
        sizes = Sizes((ROWS,) * len(tables), DIM, BATCH, 8 * BATCH * len(tables), method=method)
        exchange = RowWiseExchange(world, held, sizes)
        made.append(exchange.run(ids, lengths).transpose(0, 1).reshape(-1, DIM))
        exchange.close()
    return made


def errors(
    case: dict[str, Any], job: Job, tables: list[Any], ours: Any, theirs: Any, given: Any, others: list[Any]
) -> Any:
    """Largest error of each pass over what rounding allows; ``others``: bags of the one-sided look-ups.

    fp32 additions: each of at most n rounds by 2^-24 of a partial sum, which the sum of magnitudes bounds.
    torch writes partial bags of fp16 rows in fp16: each is rounded by 2^-11 of itself once more.
    """
    ids, lengths = given
    want = truth(tables, ids, lengths)
    sizes = truth([table.abs() for table in tables], ids, lengths)
    added = (int(lengths.max()) + job.owners) * SINGLE * sizes + 1e-30
    halves = HALF * sizes if case["dtype"] == "fp16" else 0.0
    apart = [((bags - want).abs() / added, (bags - theirs).abs() / (2 * added)) for bags in others]
    return {
        "one_sided": max((float(error.max()) for pair in apart for error in pair), default=-1.0),
        "ours": float(((ours - want).abs() / (added + halves)).max()),
        "torchrec": float(((theirs - want).abs() / added).max()),
        "both": float(((ours - theirs).abs() / (2 * added + halves)).max()),
        "largest": float(want.abs().max()),
    }


def compare(case: dict[str, Any], rank: int, ranks: int, group: Any, world: SharedWorld) -> dict[str, float]:
    count = 2 if case["lengths"] == "uneven" else 1
    kind = torch.float16 if case["dtype"] == "fp16" else torch.float32
    generator = torch.Generator().manual_seed(1)
    tables = [torch.randn(ROWS, DIM, generator=generator).to(kind) for _ in range(count)]
    job = Job(LookupWork(batch=BATCH, tables=count, dim=DIM, rows=ROWS), tuple(range(ranks)), rank)
    given = ids, lengths = batch(case, count, rank)

    mine = torch.zeros(count, job.block, DIM, dtype=kind)
    for table, whole in enumerate(tables):
        held = whole[rank * job.block : (rank + 1) * job.block]
        mine[table, : held.shape[0]] = held
    buffers = PassBuffers(job, torch.device("cpu"))
    steps: list[str] = []
    ours = forward(job, group, mine.view(-1, DIM), ids, lengths, buffers, steps.append)

    module = row_wise_module([(ROWS, DIM)] * count, case["dtype"], group, ranks, torch.device("cpu"))
    for table, first, rows in local_shards(module):
        rows.copy_(tables[table][first : first + rows.shape[0]])
    with torch.no_grad():
        theirs = module(features(count, ids, lengths)).wait().values()
    theirs = theirs.view(BATCH, count, DIM).transpose(0, 1).reshape(count * BATCH, DIM)
    others = one_sided(world, tables, ids, lengths)
    return errors(case, job, tables, ours, theirs, given, others)


def measure(torchrec: TorchRec, everyone: range, dtype: str) -> list[int]:
    """A point of a calibration: wrong and checked elements, and the bytes that this rank sends."""
    work = LookupWork(batch=33, tables=3, pooling=2.5, dim=32, rows=101)
    point = Point(
        kind=PointKind.COMPOSED, operation="row_wise", implementation="torchrec", backend="gloo",
        clock=Clock.EAGER, gpus=len(everyone), gpus_per_node=len(everyone), dtype=dtype, work=work,
    )  # fmt: skip
    operation = torchrec.operation(point, everyone)
    operation.prepare(1)
    for _ in range(3):
        operation.before()
        operation.run()
    return [*operation.check(), operation.bytes_sent]


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    ranks, port = (int(word) for word in sys.argv[1:3])
    importlib.import_module("torchrec.distributed.embeddingbag")  # once, and not by each rank
    rank = forked(ranks)
    torch.set_num_threads(1)
    place = Place(rank, ranks, local_rank=rank, local_ranks=ranks)
    with meeting(rank, ranks, str(port), "torchrec") as address:
        seen = compare_all(place, address)
    print(json.dumps(seen), flush=True)


def compare_all(place: Place, address: dict[str, str]) -> dict[str, Any]:
    rank, ranks, everyone = place.rank, place.ranks, range(place.ranks)
    torchrec = TorchRec()
    torchrec.open(place, address)
    torchrec.open_group(everyone)
    group = torchrec._groups[tuple(everyone)]
    world = SharedWorld(join_store(address["host"], int(address["port"]), "world"), rank, ranks)
    seen: dict[str, Any] = {case["name"]: compare(case, rank, ranks, group, world) for case in CASES}
    seen["points"] = {dtype: measure(torchrec, everyone, dtype) for dtype in ("fp32", "fp16")}
    torchrec.barrier(everyone)
    torchrec.close()
    return seen


if __name__ == "__main__":
    main()
