"""Processes (ranks) that time operations: how they start, the messages that they get, their clocks.

What libraries do, and what is written here because no library does it:

    start       torchrun, srun and mpirun start ranks. On one machine ``start`` calls Python's subprocess
    meet        at the address that a launcher gives (``external``)
    messages    Python's multiprocessing.connection frames them, and checks that both sides know the key
    dead, hung  here (``control``): a closed socket names a dead rank at once, a deadline a rank that hangs
    the end     here (``process``): the kernel ends a rank with its parent, because torchrun and mpirun leave
                ranks behind when they are killed

PyTorch's TCPStore starts gloo, NCCL and NVSHMEM, but carries none of these messages: a wait for a key ends at
its timeout, not when the rank that should set the key is killed; heartbeats would show that, but wake a rank
beside its timed calls; any process that reaches the port may write.
"""
