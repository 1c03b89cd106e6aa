"""The dense layers beside a plan, given by name, by operations or by time, on a machine's GPU."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.errors import BadInputError
from perfmodel.model.dense import BACKWARD, DenseModel, GivenFlops, Layers, kernels_time, update_bytes
from perfmodel.model.pipeline import dense_time
from perfmodel.schema.dense import DenseFile, load_dense, load_rates
from perfmodel.schema.evidence import Evidence
from perfmodel.units import parse_named, parse_ratio, parse_time

_OPTION = "--dense"
_HALF_BYTES = 2.0
FLOPS, SECONDS = (1.0, 1e18), (1e-9, 3600.0)
"""Ranges for dense layers: operations per sample, forward, and time of a batch [s]."""


PARTS = ("bottom", "bottom_backward", "top", "top_backward")
"""Parts of a step in which dense layers run."""


@dataclass(frozen=True)
class Dense:
    """Dense layers on a GPU.

    flops_per_s  datasheet rate of the GPU at the precision of training
    efficiency  share of that rate that matrix products reach, or, if only operations are given, all layers
                [-]
    gradient_bytes  bytes of one gradient in the all-reduce
    name  of the shipped layers or of the file; "" if operations were given
    error  relative error of the dense time, two standard deviations [-];  evidence  of the efficiency
    """

    model: Layers
    flops_per_s: float
    efficiency: float
    gradient_bytes: float
    name: str = ""
    error: float = 0.0
    evidence: Evidence = Evidence.TRANSFERRED

    def times(self, elements: float, batch: float, bytes_per_s: float, floor_s: float) -> dict[str, float]:
        """Time of each of ``PARTS`` for ``batch`` samples [s], by name.

        elements  of all embeddings of a sample
        bytes_per_s, floor_s  memory rate and launch floor of the GPU's kernels; unused if only operations are
                given
        """
        if not isinstance(self.model, DenseModel):
            top = dense_time(self.model.top_flops(elements) * batch, self.flops_per_s, self.efficiency)
            return dict(zip(PARTS, (0.0, 0.0, top, BACKWARD * top), strict=True))
        found = self.model.passes(elements, batch)
        rates = self.flops_per_s, self.efficiency, bytes_per_s, floor_s
        return {part: kernels_time(getattr(found, part), *rates) for part in PARTS}

    def reduced_bytes(self, elements: float) -> float:
        """Bytes of the gradients of all weights, in the all-reduce.

        elements  of all embeddings of a sample
        """
        return self.model.weights(elements) * self.gradient_bytes

    def updated_bytes(self, elements: float, state_bytes: float) -> float:
        """Bytes that the optimizer reads and writes, with ``state_bytes`` of state per weight."""
        return update_bytes(self.model.weights(elements), self.gradient_bytes, state_bytes)


@dataclass(frozen=True)
class DenseTime:
    """Dense layers of which only the time is known: one batch on one GPU, forward and backward [s].

    error  relative, two standard deviations [-]; 0: not given
    """

    time_s: float
    error: float = 0.0

    def times(self, elements: float, batch: float, bytes_per_s: float, floor_s: float) -> dict[str, float]:
        """Time of each of ``PARTS`` [s]: all of the time is after the embeddings, a third of it forward."""
        top = self.time_s / (1 + BACKWARD)
        return dict(zip(PARTS, (0.0, 0.0, top, BACKWARD * top), strict=True))

    def reduced_bytes(self, elements: float) -> float:
        """0: the number of weights is not known."""
        return 0.0

    def updated_bytes(self, elements: float, state_bytes: float) -> float:
        """0: the number of weights is not known."""
        return 0.0


def dense_of(text: str, machine: str) -> Dense | DenseTime:
    """The dense layers that ``--dense`` means: a name, ``mine.toml``, ``32MFLOP`` (per sample, forward),
    ``3ms`` or ``3ms±10%`` (per batch).

    machine  whose GPU runs the layers
    Limits: neither a name, a file nor a number with such a unit, or operations on a machine whose GPU has no
            known rate, or outside ``FLOPS`` or ``SECONDS`` -> BadInputError
    """
    plain = text.strip()
    if not plain:
        raise BadInputError(f"{_OPTION} is empty.", "e.g. --dense dlrm-dcnv2, 32MFLOP or 3ms.")
    number = plain[0].isdigit() or plain[0] in "+-."
    if not number or plain.endswith(".toml"):
        return from_file(load_dense(plain), machine)
    if plain.lower().endswith(("flop", "flops")):
        flops = parse_named(plain, "FLOP", _OPTION)
        _check(plain, flops, FLOPS, "1FLOP to 1000PFLOP for a sample")
        return on_machine(GivenFlops(flops), machine, _HALF_BYTES)
    plain, apart, error_text = plain.replace("+-", "±").partition("±")
    try:
        time_s = parse_time(plain.strip(), _OPTION)
        apart_by = parse_ratio(error_text, f"{_OPTION} {text}: the error") if apart else 0.0
    except BadInputError as error:
        step = "write a time of a batch (3ms), operations of a sample (32MFLOP), or a name (dlrm-dcnv2)."
        raise BadInputError(str(error.message), step) from None
    _check(plain, time_s, SECONDS, "1ns to 1h for a batch")
    if apart_by >= 1:
        raise BadInputError(f"{_OPTION} {text}: an error of all of it.", "less than 100 %, e.g. 3ms±10%.")
    return DenseTime(time_s, apart_by)


def _check(text: str, value: float, ends: tuple[float, float], limits: str) -> None:
    if not ends[0] <= value <= ends[1]:
        raise BadInputError(f"{_OPTION} {text} is not what this model covers.", f"from {limits}.")


def from_file(file: DenseFile, machine: str) -> Dense:
    """The layers of a file on the GPU of a machine."""
    model = DenseModel(file.bottom, file.top, file.rank, file.layers)
    return on_machine(model, machine, file.gradient_bytes, file.name)


def on_machine(model: Layers, machine: str, gradient_bytes: float, name: str = "") -> Dense:
    """The layers on a machine's GPU, at the shipped efficiency."""
    rates = load_rates()
    rate = rates.of(machine)
    if rate is None:
        raise BadInputError(
            f"no rate of dense layers is known for a GPU of {machine}.",
            f"give their time for a batch, forward and backward, e.g. {_OPTION} 3ms; "
            f"known: {', '.join(each.machine for each in rates.gpu)}.",
        )
    share = rates.share_of(rate.generation)
    reached = share.products if isinstance(model, DenseModel) else share.together
    return Dense(model, rate.flops_per_s, reached, gradient_bytes, name, share.error, share.evidence)
