"""Memory that runs out is said with the limit that did it, and is no bug."""

from __future__ import annotations

import errno
import resource

import pytest

from calibrate.ranks import process
from perfmodel import resources
from perfmodel.resources import memory_limits, out_of_memory


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after ``ulimit -v 4194304``: 4 GiB of addresses."""
    limits = {resource.RLIMIT_AS: 2**32}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits.get(which, resource.RLIM_INFINITY),) * 2)


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 4.00 MiB for an array"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 13440 bytes."),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
    ],
)
def test_memory_that_ran_out_names_the_limit(error: Exception) -> None:
    found = out_of_memory(error)
    assert found is not None and found.exit_code == 4
    assert "this process is limited to address space 4 GiB (ulimit -v)." in found.message
    assert " ".join(str(error).split()) in found.message
    assert "ulimit -v unlimited" in found.next_step


def test_other_errors_and_other_memories_are_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (OSError(errno.ENOSPC, "No space left"), RuntimeError("CUDA out of memory."), KeyError("a")):
        assert out_of_memory(error) is None
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    assert memory_limits() == ""
    found = out_of_memory(MemoryError())
    assert found is not None and found.message == "memory ran out."


def test_a_rank_plans_with_the_addresses_that_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    free = process.host_memory_bytes(1)
    monkeypatch.setattr(process, "address_space_bytes", lambda: 2.0**40)
    assert process.host_memory_bytes(1) == pytest.approx(free, rel=0.2)
    monkeypatch.setattr(process, "address_space_bytes", lambda: 1.0)
    assert process.host_memory_bytes(1) == 0
    assert resources.address_space_bytes() > 0
