"""The computations of a row-wise look-up on one rank, in torch; timed as single kernels and used in the pass.

All take and return torch tensors on one device and queue work without waiting for it. The T tables of one
rank are consecutive in one tensor [T R, D], with R rows of D columns each. So received ids, in the order
source, table, sample, are looked up directly: each is a row of that tensor, and needs no sorting by table.
B is the number of samples of one rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Bucketized:
    """Ids sorted by owner, the rank that holds their row.

    ids      [n] in the order owner, table, sample, as rows of the owner's tensor
    lengths  [owners, T B] number of ids of each bag for each owner
    counts   [owners] number of ids for each owner
    """

    ids: torch.Tensor
    lengths: torch.Tensor
    counts: torch.Tensor


def gather_pool(table: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Sums of the rows of each bag, fp32 [bags, D]; empty bags are 0.

    table  [rows, D] fp32 or fp16;  ids  rows to look up [n];  offsets  first id of each bag [bags]
    torch writes the bags of fp16 rows in fp16 (each sum is rounded once); conversion to fp32 is included.
    """
    import torch

    bags = torch.embedding_bag(table, ids, offsets)[0]
    return bags.float()


def bucketize(ids: torch.Tensor, lengths: torch.Tensor, tables: int, block: int, owners: int) -> Bucketized:
    """Sort ids and lengths by owner, the rank that holds the row.

    ids      numbers of rows in their own table, in the order table, sample [n]
    lengths  number of ids of each bag [T B]
    owners   at most 32768
    block    R, rows of each table that an owner holds: row r of table t belongs to owner r // R, where it
             is row t R + r mod R
    """
    import torch

    bags = lengths.numel()
    bag = torch.repeat_interleave(lengths, output_size=ids.numel())
    owner = _divide(ids, block)
    sent = torch.zeros(owners * bags, dtype=torch.int64, device=ids.device)
    sent.scatter_add_(0, owner * bags + bag, torch.ones_like(bag))  # ids of each bag for each owner
    order = _sort_stably(owner.to(torch.int16 if owners >> 8 else torch.uint8))
    row = ids - owner * block
    if tables != 1:  # behind the rows of the tables before
        row += _divide(bag, bags // tables) * block
    by_owner = sent.view(owners, bags)
    return Bucketized(row.index_select(0, order), by_owner, by_owner.sum(1))


def _divide(values: torch.Tensor, divisor: int) -> torch.Tensor:
    """values // divisor. On a CPU by numpy, which divides by multiplication: four times as fast."""
    import torch

    if values.is_cuda:
        return torch.div(values, divisor, rounding_mode="floor")
    return torch.from_numpy(values.numpy() // divisor)


def _sort_stably(keys: torch.Tensor) -> torch.Tensor:
    """Positions of 1-D keys of 8 or 16 bits in sorted order; equal keys keep their order.

    On a CPU by numpy, whose radix sort of short keys takes time proportional to their number.
    """
    import torch

    if keys.is_cuda:
        return keys.argsort(stable=True)
    return torch.from_numpy(keys.numpy().argsort(kind="stable"))


def sum_lengths(lengths: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """The position of each bag's first id, and the end [bags + 1]; ``offsets`` is filled if it is given."""
    import torch

    if offsets is None:
        offsets = torch.empty(lengths.numel() + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    offsets[0] = 0
    return offsets
