"""One PE of test_gpu_exchange.py: one-sided look-ups on a GPU over NVSHMEM; it prints what it saw.

python exchange_ranks.py TASK RANK RANKS PORT
"""

from __future__ import annotations

import json
import os
import sys

import torch
from oracles.kernels.exchange import Lookup, measure_errors
from sizes import sized

from perfmodel.errors import RankLostError

SHAPES = ((64, "fp32"), (12, "fp16"), (33, "fp32"), (128, "fp32"))
LOOKUPS = [Lookup((1001, 3, 5000), dim, sized(130, 17), sized(20, 6), dtype) for dim, dtype in SHAPES]


def main() -> None:
    import torch.distributed as dist

    from calibrate.cuda.nvshmem_world import NvshmemWorld

    task, (rank, ranks, port) = sys.argv[1], (int(word) for word in sys.argv[2:])
    device = torch.device("cuda", rank % torch.cuda.device_count())
    store = dist.TCPStore("127.0.0.1", port, ranks, is_master=rank == 0)
    world = NvshmemWorld(store, rank, ranks, device)
    if task == "bags":
        print(json.dumps(measure_errors(world, LOOKUPS, blocks=8, patience_s=60)), flush=True)
    else:
        exchange = LOOKUPS[0].make_exchange(world, blocks=8, patience_s=3)
        if rank == ranks - 1:
            os._exit(7)
        try:
            exchange.run(*(tensor.to(device) for tensor in LOOKUPS[0].draw(rank, 0)))
        except RankLostError as lost:
            print(json.dumps({"said": str(lost)}), flush=True)
    world.close()


if __name__ == "__main__":
    main()
