"""Processes (ranks) that time operations: how they start, what they are told, their clocks.

start       torchrun, srun and mpirun start ranks; on one machine ``team`` starts them by ``subprocess``
meet        at a TCPStore of rank 0's node (``launch``)
messages    JSON in that store: rank 0 sets a key, the rank that waits for it does it, and sets its answer
dead, hung  a process that was started here is seen to end; every other one by the timeout of the store
the end     the kernel ends a rank with its parent, because torchrun and mpirun leave ranks behind when
            they are killed; a rank whose store is gone ends itself
"""
