"""Gather and pool in float64, bag by bag: what the kernels of gather_pool.cu must give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from calibrate.cuda.device_tables import DeviceTables, make_tables
from calibrate.cuda.gather_pool import GatherPool, make_faults

TYPES = {"fp32": torch.float32, "fp16": torch.float16}
GUARDED = 97.0


def draw_tables(
    shapes: Sequence[tuple[int, int]], dtype: str, rng: np.random.Generator, device: Any
) -> tuple[DeviceTables, list[Any]]:
    """Tables on a device, and their values in float64."""
    rows = [torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]
    rows = [table.to(TYPES[dtype]) for table in rows]
    return make_tables([table.to(device) for table in rows]), [table.double().numpy() for table in rows]


def gather_pool(tables: Sequence[Any], batch: int, ids: Any, offsets: Any) -> tuple[Any, list[int]]:
    """Bags [B, sum D], and the positions of ids that their table does not have.

    tables   values [E, D] of each;  ids  [n] of bag t B + b at offsets[t B + b] .. offsets[t B + b + 1]
    An id out of range adds nothing. A bag of no rows is 0.
    """
    columns, wrong = [], list[int]()
    for number, values in enumerate(tables):
        bags = np.zeros((batch, values.shape[1]))
        for sample in range(batch):
            places = range(*offsets[number * batch + sample : number * batch + sample + 2])
            valid = [place for place in places if 0 <= ids[place] < len(values)]
            wrong += sorted(set(places) - set(valid))
            bags[sample] = values[ids[valid]].sum(0)
        columns.append(bags)
    return np.concatenate(columns, 1), wrong


def check_bags(
    shapes: Sequence[tuple[int, int]],
    dtype: str,
    batch: int,
    seed: int,
    *,
    plan: Any = None,
    most: int = 12,
    device: Any = "cpu",
    guard: int = 64,
    wrong: float = 0.0,
    lengths: Any = None,
) -> None:
    """Bags of random tables and faults are the reference's; around the output nothing is written.

    shapes   (E, D) of each table;  most  ids of a bag;  wrong  share of ids that no table has
    lengths  of all bags; None: random
    """
    rng = np.random.default_rng(seed)
    tables, values = draw_tables(shapes, dtype, rng, device)
    bags = batch * len(values)
    if lengths is None:
        lengths = rng.integers(0, most + 1, bags) * (rng.random(bags) < 0.7)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    parts = [rng.integers(0, len(values[bag // batch]), lengths[bag]) for bag in range(bags)]
    ids = np.concatenate(parts or [[]]).astype(np.int64)
    bad = rng.random(len(ids)) < wrong
    ids[bad] = rng.choice([-1, -(2**31), 2**31 - 1, 5000, 5001], int(bad.sum()))
    pool = GatherPool(tables, batch, len(ids) / max(1, bags), plan)
    shape = pool.make_out().shape
    memory = torch.full((shape.numel() + 2 * guard,), GUARDED, device=device)
    out, faults = memory[guard : guard + shape.numel()].view(shape), make_faults(torch.device(device))
    pool(*(torch.from_numpy(array.astype(np.int64)).to(device) for array in (ids, offsets)), out, faults)
    untouched = (memory[:guard] == GUARDED).all() and (memory[guard + shape.numel() :] == GUARDED).all()
    assert bool(untouched), seed
    wanted, positions = gather_pool(values, batch, ids, offsets)
    # of fp32 sums of so many values of order 1
    np.testing.assert_allclose(out.double().cpu(), wanted, rtol=1e-5, atol=1.1e-4, err_msg=f"seed {seed}")
    assert faults.tolist() == [len(positions), positions[0] if positions else -1, 0, -1], seed
