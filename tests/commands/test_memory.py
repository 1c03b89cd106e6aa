"""Memory that runs out is said with the limit that did it, and is no bug."""

from __future__ import annotations

import errno
import resource

import pytest

from calibrate.ranks import process
from perfmodel.resources import out_of_memory


@pytest.mark.parametrize("gib", [4, 0])
@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 4.00 MiB for an array"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 13440 bytes."),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_memory_that_ran_out_names_the_limit(
    monkeypatch: pytest.MonkeyPatch, error: Exception, gib: int
) -> None:
    """As after ``ulimit -v 4194304``, and without a limit."""
    limits = {resource.RLIMIT_AS: gib * 2**30 or resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits.get(kind, resource.RLIM_INFINITY),) * 2)
    refused = out_of_memory(error)
    assert refused is not None and refused.exit_code == 4 and " ".join(str(error).split()) in refused.message
    assert ("limited to 4 GiB of addresses (ulimit -v)." in refused.message) == bool(gib)
    for other in (OSError(errno.ENOSPC, "No space left"), RuntimeError("CUDA out of memory."), KeyError("a")):
        assert out_of_memory(other) is None


def test_a_rank_plans_with_the_addresses_that_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    free = process.estimate_memory_bytes(1)
    monkeypatch.setattr(process, "address_space_bytes", lambda: 2.0**40)
    assert process.estimate_memory_bytes(1) == pytest.approx(free, rel=0.2)
    monkeypatch.setattr(process, "address_space_bytes", lambda: 1.0)
    assert process.estimate_memory_bytes(1) == 0
