"""The row-wise pass as TorchRec runs it: a sharded EmbeddingBagCollection over gloo or NCCL.

Compared with our own pass: the same ranks, the same look-ups, the same tables, the same check.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import os
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calibrate.machine.libraries import install_torchrec
from calibrate.operations import Availability, Place
from calibrate.passes.exchange_pass import OWNER_ROWS, SPLITS, Job, expected_bags
from calibrate.passes.fbgemm_kernels import devices
from calibrate.passes.id_sets import IdSet, draw_sets
from calibrate.passes.pattern_rows import fill_rows, require_exact
from calibrate.passes.reference import count_wrong
from calibrate.planning.kernel_cells import POOLED_BYTES, SMALL_BYTES
from calibrate.providers import torch_world
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point, PointKind


def availability() -> Availability:
    """Whether TorchRec is installed; it is not imported."""
    for name in ("torchrec", "fbgemm_gpu", "torch", "torchmetrics", "tensordict"):
        if importlib.util.find_spec(name) is None:
            return Availability(False, f"{name} is not installed", install_torchrec())
    version = f"torchrec {importlib.metadata.version('torchrec')}"
    return Availability(
        True,
        install="" if "cuda" in devices() else install_torchrec(),
        version=version,
        clocks=(Clock.EAGER,),
        operations=("row_wise",),
        devices=devices(),
    )


def row_wise_module(
    tables: Sequence[tuple[int, int]], dtype: str, weighted: bool, group: Any, ranks: int, device: Any
) -> Any:
    """TorchRec's EmbeddingBagCollection of ``tables`` (rows, dim), sharded by rows over ``group``.

    Features f0, f1, ... belong to tables t0, t1, ...; the weights are whatever the memory held: fill them
    with ``local_shards``. Called by every rank of the group at once.
    """
    import torch
    import torchrec
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
    from torchrec.distributed.types import ShardingEnv

    kind = {"fp32": torchrec.types.DataType.FP32, "fp16": torchrec.types.DataType.FP16}[dtype]
    configs = [
        torchrec.EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=dim, num_embeddings=rows, feature_names=[f"f{i}"], data_type=kind
        )
        for i, (rows, dim) in enumerate(tables)
    ]
    module = torchrec.EmbeddingBagCollection(
        device=torch.device("meta"), is_weighted=weighted, tables=configs
    )
    sharder = EmbeddingBagCollectionSharder()
    plan = construct_module_sharding_plan(
        module,
        {config.name: row_wise() for config in configs},
        sharder=sharder,
        local_size=ranks,
        world_size=ranks,
        device_type=device.type,
    )
    return sharder.shard(module, plan, ShardingEnv.from_process_group(group), device=device)


def local_shards(module: Any) -> Iterator[tuple[int, int, Any]]:
    """(table, first row, rows as a tensor) of each piece that this rank holds."""
    for name, held in module.state_dict().items():
        table = int(name.split(".t")[1].split(".")[0])
        for shard in held.local_shards():
            yield table, shard.metadata.shard_offsets[0], shard.tensor.detach()


def features(tables: int, ids: Any, lengths: Any, weights: Any = None) -> Any:
    """The ids of a batch as TorchRec takes them; order table, sample."""
    import torchrec

    keys = [f"f{i}" for i in range(tables)]
    return torchrec.KeyedJaggedTensor(keys=keys, values=ids, lengths=lengths, weights=weights)


class TorchRecOperation:
    """TorchRec's forward pass over sets of ids in rotation, each copied into fixed buffers before it."""

    def __init__(self, job: Job, module: Any, sets: Sequence[IdSet], device: Any) -> None:
        import torch

        self._torch, self._job, self._module = torch, job, module
        self._sets = [tuple(torch.from_numpy(x).to(device) for x in (one.ids, one.lengths)) for one in sets]
        self._ids, self._lengths = (x.clone() for x in self._sets[0])
        self._features = features(job.work.tables, self._ids, self._lengths)
        self._at = 0
        self._out: Any = None

    @property
    def bytes_sent(self) -> int:
        """Bytes to other ranks in the last call: splits, lengths, ids and partial bags."""
        job = self._job
        to_each = SMALL_BYTES * (SPLITS + job.bags) + POOLED_BYTES * job.bags * job.work.dim
        elsewhere = int((self._ids // job.block != job.index).sum())
        return (job.owners - 1) * to_each + elsewhere * SMALL_BYTES

    def prepare(self, salt: int) -> None:
        """Start at another set; forget the bags."""
        self._at, self._out = salt * 7919 % len(self._sets), None

    def before(self) -> None:
        """The next batch arrives."""
        self._at = (self._at + 1) % len(self._sets)
        ids, lengths = self._sets[self._at]
        self._ids.copy_(ids)
        self._lengths.copy_(lengths)
        self._features = features(self._job.work.tables, self._ids, self._lengths)

    def run(self) -> None:
        """The pass."""
        with self._torch.no_grad():
            self._out = self._module(self._features).wait().values()

    def check(self) -> tuple[int, int]:
        """(wrong, checked) elements of the bags of the last call against sums of pattern rows."""
        job, work = self._job, self._job.work
        expected = expected_bags(job, self._ids, self._lengths)
        if self._out is None:
            return expected.numel(), expected.numel()
        by_table = self._out.view(work.batch, work.tables, work.dim).transpose(0, 1)
        return count_wrong(by_table.reshape(job.bags, work.dim), expected), expected.numel()

    def steps_s(self) -> Mapping[str, float]:
        """Nothing: TorchRec is timed from outside."""
        return {}


class TorchRec:
    """Provider of TorchRec's row-wise pass."""

    name = "torchrec"

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Join torch.distributed and import TorchRec; what it prints on the way is dropped."""
        self._dist = torch_world.join(place, address)
        os.environ.setdefault("LOCAL_WORLD_SIZE", str(place.local_ranks))
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            import torchrec  # noqa: F401
        import torch

        gpu = place.device == "cuda"
        self._torch, self._rank, self._ranks = torch, place.rank, place.ranks
        self._device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
        self._backend = "nccl" if gpu else "gloo"
        self._groups: dict[tuple[int, ...], Any] = {}

    def open_group(self, ranks: Sequence[int]) -> None:
        """A group for ``ranks``; every rank of the job calls this."""
        if tuple(ranks) not in self._groups:
            self._groups[tuple(ranks)] = torch_world.new_group(self._dist, ranks, self._backend)

    def operation(self, point: Point, ranks: Sequence[int]) -> TorchRecOperation:
        """The pass of a point.

        Limits: no whole pass, one rank, another library than gloo on CPUs and nccl on GPUs, rows that no rank
        would own, or bags whose sums would be rounded -> BadInputError
        """
        work = point.work
        if (
            point.kind is not PointKind.COMPOSED
            or work is None
            or len(ranks) < 2
            or point.clock != Clock.EAGER
        ):
            raise BadInputError("torchrec times whole passes of two or more ranks, one host call each.")
        job = Job(work, tuple(ranks), list(ranks).index(self._rank))
        if point.backend != self._backend or work.rows < len(ranks) or work.id_bytes != SMALL_BYTES:
            raise BadInputError(
                f"TorchRec over {point.backend}: {work.rows} rows, {job.owners} ranks, {work.id_bytes} B/id.",
                f"here it runs over {self._backend}, with a row for every rank and ids of 8 B.",
            )
        sets = draw_sets(work, point.dtype, zlib.crc32(f"{self._rank} {point.key}".encode()))
        require_exact(point.dtype, max(int(one.lengths.max()) for one in sets))
        module = row_wise_module(
            [(work.rows, work.dim)] * work.tables,
            point.dtype,
            False,
            self._groups[tuple(ranks)],
            len(ranks),
            self._device,
        )
        for table, first, rows in local_shards(module):
            owner, row = divmod(first, job.block)
            fill_rows(rows, owner * OWNER_ROWS + table * job.block + row)
        return TorchRecOperation(job, module, sets, self._device)

    def barrier(self, ranks: Sequence[int]) -> None:
        """torch.distributed's barrier."""
        self._dist.barrier(group=self._groups[tuple(ranks)])

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def close(self) -> None:
        """Forget the groups; the library of collectives leaves torch.distributed."""
        self._groups.clear()
        torch_world.leave()
