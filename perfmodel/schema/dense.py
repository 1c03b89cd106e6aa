"""Dense layers of a model, and the rate that they reach on a GPU: from shipped files, or a user's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.fields import Strict, read_as
from perfmodel.schema.files import looks_like_path, unknown_name
from perfmodel.schema.gate import WIDEST

_FOLDER, _SUFFIX = "dense", ".toml"
_WHAT = "file of dense layers"

Width = Annotated[int, Field(ge=1, le=WIDEST)]


class DenseFile(Strict):
    """Dense layers: bottom MLP, cross layers over all embeddings, top MLP.

    bottom  widths from the dense features on;  top  widths after the cross layers, in elements
    rank, layers  low rank and number of the cross layers;  gradient_bytes  of one gradient in the all-reduce
    """

    name: str = Field(min_length=1, max_length=64)
    bottom: tuple[Width, ...] = Field(min_length=1, max_length=100)
    top: tuple[Width, ...] = Field(min_length=1, max_length=100)
    rank: int = Field(ge=0, le=WIDEST)
    layers: int = Field(ge=0, le=1000)
    gradient_bytes: float = Field(gt=0, le=8)
    source: str


class Share(Strict):
    """Share of the datasheet rate that GPUs of one generation reach [-].

    products  reached by matrix products, used if the layers are known
    together  reached by all dense layers together, used if only their operations are known
    error     relative error of a dense time from this share, two standard deviations [-]
    Evidence: transferred, from MLPerf's training steps.
    """

    generation: str
    products: float = Field(gt=0, le=1)
    together: float = Field(gt=0, le=1)
    error: float = Field(ge=0, lt=1)
    source: str


class GpuRate(Strict):
    """Datasheet rate of a machine's GPU in half precision [FLOP/s]."""

    machine: str
    generation: str
    flops_per_s: float = Field(gt=0)
    source: str


class DenseRates(Strict):
    """Contents of ``data/dlrm/rates.toml``."""

    share: list[Share]
    gpu: list[GpuRate]

    def of(self, machine: str) -> GpuRate:
        """The rate of a machine's GPU. Limits: a machine that is not shipped -> BadInputError"""
        for rate in self.gpu:
            if rate.machine == machine:
                return rate
        raise BadInputError(
            f"no rate of dense layers is known for a GPU of {machine}.",
            "give their time for a batch, forward and backward, e.g. --dense 3ms; "
            f"known: {', '.join(rate.machine for rate in self.gpu)}.",
        )

    def share_of(self, generation: str) -> Share:
        """Share of a generation; for a generation without measured steps, the share of all others."""
        named = {each.generation: each for each in self.share}
        return named.get(generation, named[ANY])


ANY = "any"
"""Key of the share for generations without measured steps."""


def list_dense() -> list[str]:
    """Names of the shipped dense layers."""
    return resources.data_names(_FOLDER, _SUFFIX)


def load_dense(name_or_path: str) -> DenseFile:
    """Shipped dense layers by name, or a TOML file by path.

    Limits: an unknown name, or a file with other fields -> BadInputError
    """
    path = Path(name_or_path)
    if not looks_like_path(name_or_path, (_SUFFIX,)):
        if name_or_path not in list_dense():
            raise unknown_name("--dense", name_or_path, list_dense())
        path = resources.data_path(_FOLDER, name_or_path + _SUFFIX)
    return read_as(DenseFile, path, _WHAT)


@lru_cache(maxsize=1)
def load_rates() -> DenseRates:
    """The shipped rates."""
    return read_as(DenseRates, resources.data_path("dlrm", "rates.toml"), "file of rates")
