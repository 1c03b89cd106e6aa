"""Processes that time what they are asked: starting them, talking to them, their clocks.

What libraries do for them, and what is ours because no library does it:

    start       torchrun, srun and mpirun start ranks. On one machine ``start`` calls mpirun, or Python's
                subprocess where MPI is not measured: ``shmem`` needs numpy alone, and no torch
    meet        at the address that a launcher gives (``external``); over nodes mpirun gives none, MPI does
    messages    Python's multiprocessing.connection frames them, and checks that both sides know the key
    dead, hung  ours (``control``): a socket that closes names a dead rank at once, a deadline one that hangs
    the end     ours (``process``): the kernel ends a rank with its parent, because torchrun and mpirun leave
                ranks behind when they are killed; ``scratch`` removes the files that a killed mpirun leaves

PyTorch's TCPStore starts gloo, NCCL and NVSHMEM, and carries none of these messages: a wait for a key ends at
its timeout, not when the rank that should set the key is killed; heartbeats, which would tell, wake a rank
beside its timed calls; any process that reaches the port may write; ``mpi`` and ``shmem`` need no torch.
Messages of MPI end with the first rank that dies, because mpirun then ends the others, rank 0 among them.
"""
