"""The row-wise pass as TorchRec runs it: a sharded EmbeddingBagCollection with gloo or NCCL.

For comparison with our own pass: the same ranks, look-ups, tables and checks.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from calibrate.operations import Place
from calibrate.passes.exchange_pass import OWNER_ROWS, GroupedPass, Job, PassOperation, read_pass
from calibrate.passes.id_sets import IdSet
from calibrate.passes.pattern_rows import fill_rows
from perfmodel.schema.runs import Point

if TYPE_CHECKING:
    import torch
    import torchrec
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup


def shard_module(
    tables: Sequence[tuple[int, int]], dtype: str, group: ProcessGroup, ranks: int, device: torch.device
) -> nn.Module:
    """TorchRec's EmbeddingBagCollection, sharded by rows over the ranks of ``group``.

    tables    (rows, columns) of each;  dtype  element type of the rows
    Features f0, f1, ... belong to tables t0, t1, ...; the rows are uninitialised: fill them with
    ``list_shards``. Called by every rank of the group at once.
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
    module = torchrec.EmbeddingBagCollection(device=torch.device("meta"), tables=configs)
    sharder = EmbeddingBagCollectionSharder()
    plan = construct_module_sharding_plan(
        module,
        {config.name: row_wise() for config in configs},
        sharder=sharder,
        local_size=ranks,
        world_size=ranks,
        device_type=device.type,
    )
    env = ShardingEnv(ranks, group.rank())
    env.process_group = group  # given at once, it makes a DeviceMesh: groups that other ranks do not make
    return sharder.shard(module, plan, env, device=device)


def list_shards(module: nn.Module) -> Iterator[tuple[int, int, Tensor]]:
    """For each piece of a table that this rank holds: (number of the table, first row, rows as a tensor)."""
    for name, held in module.state_dict().items():
        table = int(name.split(".t")[1].split(".")[0])
        for shard in held.local_shards():
            yield table, shard.metadata.shard_offsets[0], shard.tensor.detach()


def make_features(tables: int, ids: Tensor, lengths: Tensor) -> torchrec.KeyedJaggedTensor:
    """The ids of a batch as TorchRec's KeyedJaggedTensor; ids and lengths are in the order table, sample."""
    import torchrec

    keys = [f"f{i}" for i in range(tables)]
    return torchrec.KeyedJaggedTensor(keys=keys, values=ids, lengths=lengths)


class TorchRecOperation(PassOperation):
    """TorchRec's forward pass. Only the whole pass is timed, not its steps."""

    def __init__(self, job: Job, module: nn.Module, sets: Sequence[IdSet], device: torch.device) -> None:
        import torch

        super().__init__(job, sets, device)
        self._torch = torch
        self._module = module
        self._features = make_features(job.work.tables, self._ids, self._lengths)

    def before(self) -> None:
        """Take the next set of ids and convert it to TorchRec's form."""
        super().before()
        self._features = make_features(self._job.work.tables, self._ids, self._lengths)

    def run(self) -> None:
        """Run the pass."""
        with self._torch.no_grad():
            self._bags = self._module(self._features).wait().values()

    def _by_table(self, bags: Tensor) -> Tensor:
        """Bags [B, T D] as [T B, D]."""
        work = self._job.work
        return bags.view(work.batch, work.tables, work.dim).transpose(0, 1).reshape(-1, work.dim)


class TorchRec(GroupedPass):
    """Provider of TorchRec's row-wise pass."""

    name = "torchrec"

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """As in the base class; also import TorchRec, and drop what it prints."""
        super().open(place, address)
        os.environ.setdefault("LOCAL_WORLD_SIZE", str(place.local_ranks))
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            import torchrec  # noqa: F401

    def operation(self, point: Point, ranks: Sequence[int]) -> TorchRecOperation:
        """The operation that times the pass of ``point``. Limits: as ``read_pass`` and ``_group``"""
        job, sets = read_pass(point, ranks, self._rank, self.name)
        tables = [(job.work.rows, job.work.dim)] * job.work.tables
        group = self._group(point, ranks)
        module = shard_module(tables, point.dtype, group, len(ranks), self._device)
        for table, first_row, rows in list_shards(module):
            owner = first_row // job.block  # TorchRec cuts tables as we do
            fill_rows(rows, owner * OWNER_ROWS + table * job.block)
        return TorchRecOperation(job, module, sets, self._device)
