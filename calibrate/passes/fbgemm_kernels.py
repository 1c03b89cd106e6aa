"""Times FBGEMM's look-up, as TorchRec calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrate.operations import Place
from calibrate.passes.pattern_rows import fill_rows
from calibrate.passes.torch_kernels import Function, Inputs, TorchKernels
from perfmodel.schema.runs import LookupWork


class FbgemmKernels(TorchKernels):
    """Times FBGEMM's kernels: rows fp32 or fp16, bags fp32, separate tables."""

    name = "fbgemm"
    operations = ("gather_pool",)
    by_table = True
    copied = False

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Load FBGEMM's operators into torch, then as in the base class."""
        import fbgemm_gpu  # noqa: F401  (registers torch.ops.fbgemm)

        super().open(place, address)

    def _lookup(self, work: LookupWork, dtype: str, copies: int) -> tuple[None, Function]:
        """FBGEMM's split table-batched embedding bags for ``work``, filled with pattern rows."""
        from fbgemm_gpu.split_embedding_configs import SparseType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )

        place = EmbeddingLocation.DEVICE if self._gpu else EmbeddingLocation.HOST
        device = ComputeDevice.CUDA if self._gpu else ComputeDevice.CPU
        bags = SplitTableBatchedEmbeddingBagsCodegen(
            [(work.rows, work.dim, place, device)] * work.tables,
            weights_precision=SparseType(dtype),
            output_dtype=SparseType.FP32,
            device=self._device,
        )
        for table, rows in enumerate(bags.split_embedding_weights()):
            fill_rows(rows.detach(), table * work.rows)

        def call(inputs: Inputs) -> Any:
            with self._torch.no_grad():
                return bags(inputs[0], inputs[1])

        return None, call
