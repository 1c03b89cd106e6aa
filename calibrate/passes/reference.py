"""Expected results of the computations in ``lookup``, by another method: masks, no sort.

Deliberately slow and plain; torch tensors in and out, on the device of the inputs.
"""

from __future__ import annotations

from typing import Any


def bucketized(ids: Any, lengths: Any, tables: int, block: int, owners: int) -> tuple[Any, Any]:
    """Ids [n] and lengths [owners, T B] by owner, as ``lookup.bucketize`` returns them."""
    import torch

    bags = lengths.numel()
    bag = torch.arange(bags, device=ids.device).repeat_interleave(lengths)
    owner, row = ids // block, bag // (bags // tables) * block + ids % block
    mine = [owner == one for one in range(owners)]
    counts = [torch.bincount(bag[mask], minlength=bags) for mask in mine]
    return torch.cat([row[mask] for mask in mine]), torch.stack(counts)


def count_wrong(got: Any, want: Any) -> int:
    """Number of elements that differ; all of them if the shapes do."""
    if got.shape != want.shape:
        return int(max(got.numel(), want.numel()))
    return int((got != want).count_nonzero())
