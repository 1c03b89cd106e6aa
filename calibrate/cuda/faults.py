"""Ids outside their tables, as kernels report them (``pm::Faults``)."""

from __future__ import annotations

from typing import Any

from perfmodel.errors import BadInputError


def on_device(device: Any) -> Any:
    """The actual device of tensors made on ``device``: cuda becomes cuda:0."""
    import torch

    return torch.empty(0, device=device).device


def new_faults(device: Any) -> Any:
    """Faults of a call without faults: number, position of the first (-1), int64 [2]."""
    import torch

    return torch.tensor([0, -1], device=device)


def raise_faults(faults: Any, what: str, next_step: str) -> None:
    """Wait for the device; raise BadInputError if ``faults`` has any.

    what  names the faults: "ids outside their tables"
    """
    count, first = faults.tolist()
    if count:
        raise BadInputError(f"{count} {what}, the first at position {first}.", next_step)
