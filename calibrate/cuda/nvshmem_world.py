"""NVSHMEM's memory between GPUs of one or several nodes; started through torch's TCPStore, without MPI.

Rank 0 creates the 128 bytes of NVSHMEM's unique id and puts them into the store, which every rank can reach.
Ranks also use the store to agree with each other. The host library's functions have the signatures of NVSHMEM
3.4.5.
"""

from __future__ import annotations

import ctypes
from datetime import timedelta
from typing import Any

from calibrate.cuda import nvshmem_build
from calibrate.cuda.symmetric_worlds import WAIT_S, Region, digest_of, require_equal
from perfmodel.errors import BadInputError, NoHardwareError, PerfmodelError, RankLostError

_WITH_UNIQUE_ID = 8
_BOOTSTRAPPED = 1  # nvshmemx_init_status: ranks know each other, without a GPU
_PROBE_BYTES = 256


class _UniqueId(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int), ("internal", ctypes.c_char * 124))


class _UniqueIdArguments(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int),
        ("id", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("ranks", ctypes.c_int),
    )


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int),
        ("unique", _UniqueIdArguments),
        ("content", ctypes.c_char * 96),
    )


class _Attributes(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int), ("mpi", ctypes.c_void_p), ("arguments", _Arguments))


def _version(kind: type[ctypes.Structure]) -> int:
    """The version number that NVSHMEM expects in a structure of this type."""
    return (1 << 16) + ctypes.sizeof(kind)


def start(store: Any, rank: int, ranks: int) -> int:
    """Start NVSHMEM on this rank; returns its status, which is above 1 if it has a GPU. All ranks call it.

    store  torch.distributed's TCPStore, or a PrefixStore of it, shared by all ranks
    Limits: NVSHMEM fails, or numbers the ranks differently -> PerfmodelError
    """
    library = nvshmem_build.host_library()
    unique = _UniqueId(version=_version(_UniqueId))
    if rank == 0:
        _require(library.nvshmemx_get_uniqueid(ctypes.byref(unique)), "makes no unique id")
        store.set("unique-id", bytes(unique))
    unique = _UniqueId.from_buffer_copy(store.get("unique-id"))
    attributes = _Attributes(version=_version(_Attributes))
    attributes.arguments.version = _version(_Arguments)
    attributes.arguments.unique.version = _version(_UniqueIdArguments)
    by_id = library.nvshmemx_set_attr_uniqueid_args(
        rank, ranks, ctypes.byref(unique), ctypes.byref(attributes)
    )
    _require(by_id, "takes no unique id")
    _require(library.nvshmemx_hostlib_init_attr(_WITH_UNIQUE_ID, ctypes.byref(attributes)), "does not start")
    found = library.nvshmem_my_pe(), library.nvshmem_n_pes()
    if found != (rank, ranks):
        raise PerfmodelError(f"NVSHMEM calls rank {rank} of {ranks} PE {found[0]} of {found[1]}.")
    return int(library.nvshmemx_init_status())


class NvshmemWorld:
    """Ranks (NVSHMEM: PEs) that reach each other's GPU memory, one per GPU, over one or several nodes.

    Several ranks per GPU work too, to check results.
    store   store of torch.distributed, shared by all ranks, without other keys (a PrefixStore of its own)
    device  torch.device of this rank's GPU
    Limits: no GPU -> NoHardwareError
    """

    nvshmem = True

    def __init__(self, store: Any, rank: int, ranks: int, device: Any) -> None:
        import torch

        self.rank, self.ranks, self.device = rank, ranks, device
        self._store, self._agreed = store, 0
        self._broken = False
        self._held: list[int] = []
        torch.cuda.set_device(device)
        torch.cuda.current_stream(device).synchronize()  # NVSHMEM starts in the existing context
        if start(store, rank, ranks) <= _BOOTSTRAPPED:
            raise NoHardwareError("NVSHMEM found no GPU.", "see whether nvidia-smi lists one.")
        self._library = nvshmem_build.host_library()
        mapped = all(self._bases(self._malloc(_PROBE_BYTES)))
        store.set(f"mapped/{rank}", "yes" if mapped else "no")
        self.all_mapped = all(self._heard(f"mapped/{peer}", peer) == b"yes" for peer in range(ranks))

    def allocate(self, count: int) -> Region:
        """A region on every PE. Limits: NVSHMEM's heap is too small -> BadInputError"""
        import torch

        at = self._malloc(count)
        memory = _tensor(at, count, self.device).zero_()
        torch.cuda.synchronize(self.device)
        self.agree("a region is zero")  # before any PE puts into it
        return Region(memory, tuple(self._bases(at)))

    def agree(self, what: str) -> None:
        """Wait for all ranks through the store; errors as in calibrate.cuda.symmetric_worlds."""
        self._agreed += 1
        self._store.set(f"{self._agreed}/{self.rank}", str(digest_of(what)))
        heard = [int(self._heard(f"{self._agreed}/{peer}", peer)) for peer in range(self.ranks)]
        require_equal(heard, self.rank)

    def lost(self) -> list[int]:
        """Always empty: NVSHMEM does not say which ranks are lost."""
        return []

    def give_up(self) -> None:
        """Make ``close`` skip NVSHMEM's own shutdown, which would wait for all ranks."""
        self._broken = True

    def close(self) -> None:
        """Leave NVSHMEM, all ranks together. After ``give_up``: do nothing, the process will end."""
        if self._broken:
            return
        import torch

        torch.cuda.synchronize(self.device)
        self.agree("leave")  # raises if a rank is missing; NVSHMEM's own barrier would hang
        self._broken = True
        for at in self._held:
            self._library.nvshmem_free(at)
        nvshmem_build.unload()
        self._library.nvshmemx_hostlib_finalize()

    def _malloc(self, count: int) -> int:
        at = self._library.nvshmem_malloc(count)
        if not at:
            raise BadInputError(
                f"{count} bytes do not fit NVSHMEM's symmetric heap.",
                "set NVSHMEM_SYMMETRIC_SIZE to more, or use a smaller batch.",
            )
        self._held.append(at)
        return int(at)

    def _bases(self, at: int) -> list[int]:
        """For each rank, the address here of its region, at ``at`` on this rank; 0: not mapped."""
        return [int(self._library.nvshmem_ptr(at, peer) or 0) for peer in range(self.ranks)]

    def _heard(self, key: str, peer: int) -> bytes:
        try:
            self._store.wait([key], timedelta(seconds=WAIT_S))
        except RuntimeError:
            self._broken = True
            raise RankLostError(
                f"rank {peer}", f"has not answered for {WAIT_S:g} s", "start all ranks again."
            ) from None
        said: bytes = self._store.get(key)
        return said


def _tensor(address: int, count: int, device: Any) -> Any:
    """GPU memory that NVSHMEM owns, as a torch tensor uint8 [count], through CuPy."""
    import cupy
    import torch

    with cupy.cuda.Device(torch.empty(0, device=device).device.index):
        memory = cupy.cuda.UnownedMemory(address, count, owner=None)
        array = cupy.ndarray((count,), cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))
        return torch.from_dlpack(array)


def _require(status: int, what: str) -> None:
    if status:
        raise PerfmodelError(
            f"NVSHMEM {what} (status {status}).",
            "NVSHMEM_DEBUG=INFO says more; NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME names the network to use.",
        )
