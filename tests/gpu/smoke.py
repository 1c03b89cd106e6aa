"""One kernel on the GPU, compared with torch, by itself and in a graph: before anything else."""

from __future__ import annotations

import sys

import torch

from calibrate.cuda.device_tables import make_tables
from calibrate.cuda.gather_pool import GatherPool, make_faults


def main() -> int:
    """0 where our bags are torch's."""
    gpu = torch.device("cuda", 0)
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name(gpu)}", flush=True)
    table = torch.randint(-8, 9, (1000, 128), device=gpu).float()
    ids, offsets = torch.randint(0, 1000, (640,), device=gpu), torch.arange(0, 641, 10, device=gpu)
    bag = torch.nn.functional.embedding_bag
    want = bag(ids, table, offsets, mode="sum", include_last_offset=True)
    pool = GatherPool(make_tables([table]), 64, 10)
    out, faults = pool.make_out(), make_faults(gpu)
    pool(ids, offsets, out, faults)
    torch.cuda.synchronize()
    alone = torch.equal(out, want) and faults.tolist() == [0, -1, 0, -1]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pool(ids, offsets, out, faults)
    out.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    replayed = torch.equal(out, want)
    print(f"bags are torch's: {alone}; in a graph: {replayed}")
    return int(not (alone and replayed))


if __name__ == "__main__":
    sys.exit(main())
