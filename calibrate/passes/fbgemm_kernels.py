"""Times FBGEMM's look-up, as TorchRec calls it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from calibrate.machine.libraries import install_torchrec
from calibrate.operations import Availability, Place
from calibrate.passes.pattern_rows import fill_rows
from calibrate.passes.torch_kernels import CLOCKS, Function, Inputs, TorchKernels
from calibrate.running.versions import PACKAGES, package_version
from perfmodel.schema.runs import LookupWork

CPU_PACKAGE = "fbgemm-gpu-cpu"
_OPERATIONS = ("gather_pool",)


def availability() -> Availability:
    """Whether FBGEMM's operators are installed; they are not loaded."""
    if importlib.util.find_spec("fbgemm_gpu") is None:
        return Availability(False, "fbgemm_gpu is not installed", install_torchrec())
    return Availability(
        True,
        install="" if "cuda" in devices() else install_torchrec(),
        version=f"fbgemm {package_version(PACKAGES['fbgemm']) or 'unknown'}",
        clocks=CLOCKS,
        operations=_OPERATIONS,
        devices=devices(),
    )


def devices() -> tuple[str, ...]:
    """Devices that the installed distribution has kernels for."""
    return ("cpu",) if package_version((CPU_PACKAGE,)) else ("cpu", "cuda")


class FbgemmKernels(TorchKernels):
    """Times FBGEMM's kernels: rows fp32 or fp16, bags fp32, separate tables."""

    name = "fbgemm"
    operations = _OPERATIONS
    by_table = True
    copied = False

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Load the operators."""
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
            weights_precision=SparseType.FP16 if dtype == "fp16" else SparseType.FP32,
            output_dtype=SparseType.FP32,
            device=self._device,
        )
        for table, rows in enumerate(bags.split_embedding_weights()):
            fill_rows(rows.detach(), table * work.rows)

        def call(inputs: Inputs) -> Any:
            with self._torch.no_grad():
                return bags(inputs[0], inputs[1])

        return None, call
