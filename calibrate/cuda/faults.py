"""How kernels report ids outside their tables (``pm::Faults``)."""

from __future__ import annotations

from typing import Any

from perfmodel.errors import BadInputError


def on_device(device: Any) -> Any:
    """The device that tensors made on ``device`` really have: cuda becomes cuda:0."""
    import torch

    return torch.empty(0, device=device).device


def new_faults(device: Any) -> Any:
    """A tensor into which a call reports faults, int64 [2]: their number 0, position of the first -1."""
    import torch

    return torch.tensor([0, -1], device=device)


def raise_faults(faults: Any, what: str, next_step: str) -> None:
    """Wait for the device; raise BadInputError if ``faults`` has any.

    what  words for the faults: "ids outside their tables";  next_step  advice of the error
    """
    count, first = faults.tolist()
    if count:
        raise BadInputError(f"{count} {what}, the first at position {first}.", next_step)
