"""Every family of kernels on few and odd shapes, each result compared: what a sanitizer can run in a minute.

    python tests/gpu/small_cases.py FAMILY [--device cuda]

FAMILY  gather_pool, exchange
Exit code 1 where a result is wrong. Says on stdout how many cases there were.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

for folder in (Path(__file__).parents[1], Path(__file__).parent):
    sys.path.insert(0, str(folder))

from calibrate.cuda import gather_pool as gp  # noqa: E402
from calibrate.cuda.device_tables import make_tables  # noqa: E402
from calibrate.cuda.gather_layout import GatherLayout  # noqa: E402

Case = tuple[str, bool]
"""What was run, and whether its result was right."""


def _drawn(rows: list[int], batch: int, most: int, device: Any) -> tuple[Any, Any, Any]:
    """Ids, offsets and lengths of bags of up to ``most`` ids, table by table."""
    lengths = torch.randint(0, most + 1, (len(rows) * batch,))
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    counts = lengths.view(len(rows), batch).sum(1).tolist()
    ids = torch.cat([torch.randint(0, high, (n,)) for high, n in zip(rows, counts, strict=True)])
    return ids.to(device), offsets.to(device), lengths.to(device)


def _bags(tables: list[Any], ids: Any, offsets: Any) -> Any:
    """torch's bags on the CPU [B, sum D]; elements are small whole numbers: sums are exact."""
    batch = (offsets.numel() - 1) // len(tables)
    made = []
    for number, rows in enumerate(tables):
        ends = offsets[number * batch : (number + 1) * batch + 1].cpu().long()
        some = ids[int(ends[0]) : int(ends[-1])].cpu().long()
        bag = torch.nn.functional.embedding_bag
        made.append(bag(some, rows.float().cpu(), ends - ends[0], mode="sum", include_last_offset=True))
    return torch.cat(made, 1)


def gather_pool(device: Any) -> Iterator[Case]:
    """Widths, element types, both kernels."""
    shapes = ((70, 128), (33, 32), (1, 4), (20, 33), (9, 260), (50, 7))
    plans = {"chosen": None, "long": GatherLayout(True, 64, 1, 40), "runs": GatherLayout(False, 64, 5, 20)}
    for dtype in (torch.float32, torch.float16):
        rows = [torch.randint(-8, 9, shape).to(dtype).to(device) for shape in shapes]
        for name, plan in plans.items():
            ids, offsets, _ = _drawn([len(one) for one in rows], 37, 20, device)
            pool = gp.GatherPool(make_tables(rows), 37, 10, plan)
            out, faults = pool.make_out(), gp.make_faults(device)
            pool(ids, offsets, out, faults)
            good = torch.equal(out.cpu(), _bags(rows, ids, offsets)) and faults.tolist() == [0, -1, 0, -1]
            yield f"{dtype} {name}", good


def exchange(device: Any) -> Iterator[Case]:
    """Fused and in three stages, of two threads that play PEs."""
    import exchange_ranks
    from oracles.thread_world import threads_of

    exchange_ranks.ROWS, exchange_ranks.BATCH, exchange_ranks.MOST = (101, 3, 50), 17, 6
    answers: list[dict[str, float]] = []
    exchange_ranks.shares(threads_of(1, device)[0], 4, patience_s=15)

    def work(world: Any) -> None:
        if device.type == "cpu":
            answers.append(exchange_ranks.shares(world, 4, patience_s=15))
            return
        with torch.cuda.stream(torch.cuda.Stream(world.device)):
            answers.append(exchange_ranks.shares(world, 4, patience_s=15))

    threads = [threading.Thread(target=work, args=(world,)) for world in threads_of(2, device)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield "two threads answered", len(answers) == 2
    for seen in answers:
        yield from ((what, error < 1) for what, error in seen.items())


FAMILIES: dict[str, Callable[[Any], Iterator[Case]]] = {
    "gather_pool": gather_pool,
    "exchange": exchange,
}


def main() -> int:
    """0 where all results are right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    torch.manual_seed(1)
    seen = list(FAMILIES[asked.family](torch.device(asked.device)))
    wrong = [name for name, good in seen if not good]
    for name in wrong:
        print(f"WRONG {asked.family}: {name}")
    print(f"{asked.family}: {len(seen)} cases, {len(wrong)} wrong")
    return int(bool(wrong) or not seen)


if __name__ == "__main__":
    sys.exit(main())
