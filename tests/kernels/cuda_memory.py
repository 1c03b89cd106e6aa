"""Poisoned outputs between guards, on the CPU that stands in for a GPU, and seeds that a failure shows."""

from __future__ import annotations

from typing import Any

import numpy as np

GUARD = 16
POISON = -77


def fresh_random() -> np.random.Generator:
    """Other numbers in every run; pytest shows the seed of a test that fails."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def guarded(tensor: Any) -> tuple[Any, Any]:
    """Poisoned memory as large as ``tensor`` between guards: the middle, and all of it."""
    flat = tensor.new_full((tensor.numel() + 2 * GUARD,), POISON)
    return flat[GUARD : GUARD + tensor.numel()].view(tensor.shape), flat


def poison(outputs: Any) -> list[Any]:
    """Let the tensors of a dataclass lie between guards; returns what lies around them."""
    memory = []
    for name, tensor in vars(outputs).items():
        if tensor is not None:
            inside, outside = guarded(tensor)
            object.__setattr__(outputs, name, inside)
            memory.append(outside)
    return memory


def assert_guards_hold(memory: list[Any]) -> None:
    for one in memory:
        assert (one[:GUARD] == POISON).all() and (one[-GUARD:] == POISON).all()
