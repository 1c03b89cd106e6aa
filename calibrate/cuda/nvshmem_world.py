"""NVSHMEM's memory between GPUs of one or several nodes; started through torch's TCPStore, without MPI.

Rank 0 creates the 128 bytes of NVSHMEM's unique id and puts them into the store, which every rank can reach.
Ranks also use the store to agree with each other. The host library's functions have the signatures of NVSHMEM
3.4.5.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from calibrate.cuda import nvshmem_build
from calibrate.cuda.symmetric_worlds import Region, SymmetricWorld
from perfmodel.errors import BadInputError, NoHardwareError, PerfmodelError

_UNIQUE_ID_BYTES = 128
_INITIAL = np.zeros(36, np.int32)
_INITIAL[[0, 4, 6]] = (1 << 16) + np.array([144, 128, 24])
"""Versions of NVSHMEM's attributes, and of their parts, with their sizes in bytes: its initializer in C sets
them (device_host/nvshmem_types.h), nvshmem4py does not."""

_BOOTSTRAPPED = 1  # nvshmemx_init_status: ranks know each other, without a GPU
_PROBE_BYTES = 256


def start(store: Any, rank: int, ranks: int) -> int:
    """Start NVSHMEM on this rank; returns its status (above 1: started, with a GPU). All ranks call it.

    store  torch.distributed's TCPStore, or a PrefixStore of it, shared by all ranks
    Limits: NVSHMEM fails, or numbers the ranks differently -> PerfmodelError
    """
    library = nvshmem_build.load_host_library()
    if library.init_status() > _BOOTSTRAPPED:  # the collectives that are timed have started it
        return _agreeing(library, rank, ranks)
    unique = library.uniqueid()
    attributes = library.InitAttr()
    ctypes.memmove(attributes.ptr, _INITIAL.ctypes.data, _INITIAL.nbytes)
    try:
        if not rank:
            library.get_uniqueid(unique.ptr)
            store.set("unique-id", ctypes.string_at(unique.ptr, _UNIQUE_ID_BYTES))
        ctypes.memmove(unique.ptr, store.get("unique-id"), _UNIQUE_ID_BYTES)
        library.set_attr_uniqueid_args(rank, ranks, unique.ptr, attributes.ptr)
        library.hostlib_init_attr(library.Flags.INIT_WITH_UNIQUEID, attributes.ptr)
    except library.NVSHMEMError as error:
        raise PerfmodelError(
            f"NVSHMEM does not start ({error}).",
            "NVSHMEM_DEBUG=INFO says more; NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME names the network to use.",
        ) from None
    return _agreeing(library, rank, ranks)


def _agreeing(library: Any, rank: int, ranks: int) -> int:
    """NVSHMEM's status. Limits: it numbers the ranks differently -> PerfmodelError"""
    numbered = library.my_pe(), library.n_pes()
    if numbered != (rank, ranks):
        raise PerfmodelError(f"NVSHMEM calls rank {rank} of {ranks} PE {numbered[0]} of {numbered[1]}.")
    return int(library.init_status())


class NvshmemWorld(SymmetricWorld):
    """Ranks (NVSHMEM: PEs) that reach each other's GPU memory, one per GPU, over one or several nodes.

    Several ranks per GPU work too, to check results.
    store   as in SymmetricWorld
    device  torch.device of this rank's GPU
    Limits: no GPU -> NoHardwareError
    """

    nvshmem = True

    def __init__(self, store: Any, rank: int, ranks: int, device: Any) -> None:
        """Start NVSHMEM unless it runs, and find out whether all ranks can address each other's memory."""
        import torch

        super().__init__(store, rank, ranks)
        self.device = device
        self._held: list[int] = []
        torch.cuda.set_device(device)
        torch.cuda.current_stream(device).synchronize()  # NVSHMEM starts in the existing context
        self._library = nvshmem_build.load_host_library()
        self._started_here = self._library.init_status() <= _BOOTSTRAPPED
        if start(store, rank, ranks) <= _BOOTSTRAPPED:
            raise NoHardwareError("NVSHMEM found no GPU.", "see whether nvidia-smi lists one.")
        mapped = all(self._bases(self._malloc(_PROBE_BYTES)))
        store.set(f"mapped/{rank}", "yes" if mapped else "no")
        self.all_mapped = all(self._heard(f"mapped/{peer}", peer) == "yes" for peer in range(ranks))

    def _allocate(self, count: int) -> Region:
        """A region on every PE. Limits: NVSHMEM's heap is too small -> BadInputError"""
        import cupy
        import torch

        address = self._malloc(count)
        with cupy.cuda.Device(torch.empty((), device=self.device).device.index):
            owned = cupy.cuda.UnownedMemory(address, count, owner=None)  # by NVSHMEM
            array = cupy.ndarray((count,), cupy.uint8, cupy.cuda.MemoryPointer(owned, 0))
            memory = torch.from_dlpack(array)
        memory.zero_()
        torch.cuda.synchronize(self.device)
        self.agree("a region is zero")  # before any PE puts into it
        return Region(memory, tuple(self._bases(address)))

    def give_up(self) -> None:
        """Make ``close`` skip NVSHMEM's own shutdown, which would wait for all ranks."""
        self._library = None

    def close(self) -> None:
        """Leave NVSHMEM, all ranks together. After ``give_up``: do nothing, the process will end."""
        library = self._library
        if library is None:
            return
        import torch

        torch.cuda.synchronize(self.device)
        self.agree("leave")  # raises if a rank is missing; NVSHMEM's own barrier would hang
        self._library = None
        for address in self._held:
            library.free(address)
        nvshmem_build.unload()
        if self._started_here:
            library.hostlib_finalize()

    def _malloc(self, count: int) -> int:
        """Address of ``count`` bytes of NVSHMEM's heap; all PEs call it. Limits: full -> BadInputError"""
        address = self._library.malloc(count)
        if not address:
            raise BadInputError(
                f"{count} bytes do not fit NVSHMEM's symmetric heap.",
                "set NVSHMEM_SYMMETRIC_SIZE to more, or use a smaller batch.",
            )
        self._held.append(address)
        return int(address)

    def _bases(self, address: int) -> list[int]:
        """Where this GPU finds each rank's copy of the region at ``address``; 0: out of reach of loads."""
        return [int(self._library.ptr(address, peer)) for peer in range(self.ranks)]
