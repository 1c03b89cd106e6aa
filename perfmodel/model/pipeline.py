"""A training step as tasks on streams: its parts, their dependencies, and what may overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.model.schedule import COMPUTE, NETWORK, Task


def dense_time(flops: float, rate: float, efficiency: float) -> float:
    """Time of a dense part of the model.

        t = flops / (rate efficiency)                                         [s]

    flops  floating-point operations [FLOP];  rate  of the GPU, from its datasheet [FLOP/s]
    efficiency  share of that rate that is reached [-], above 0
    Source: definition
    Limits: no operations -> 0;  efficiency = 1 -> the datasheet's
    """
    return flops / (rate * efficiency)


@dataclass(frozen=True)
class Parts:
    """Times of the parts of one training step [s]; "dp" are replicated (data-parallel) tables.

    bucketize, keys  sorting ids by holder, and sending them;  lookup, dp_lookup  gathers
    forward, backward  exchange of bags, and of gradients
    bottom, top  MLPs (the interaction counts as top), forward; ``*_backward``  their gradients
    update, dp_update  of rows and optimizer state;  dp_reduce  all-reduce of replicated tables
    dense_reduce, dense_update  all-reduce of the MLPs' gradients, and their optimizer
    pool, unpool  kernels around the exchanges: sums of partial bags, conversions, gradients summed by row
    """

    keys: float
    lookup: float
    forward: float
    backward: float
    update: float
    top: float
    top_backward: float
    bottom: float = 0.0
    bottom_backward: float = 0.0
    dp_lookup: float = 0.0
    dp_reduce: float = 0.0
    dp_update: float = 0.0
    dense_reduce: float = 0.0
    dense_update: float = 0.0
    pool: float = 0.0
    unpool: float = 0.0
    bucketize: float = 0.0


def overlapped(parts: Parts) -> tuple[Task, ...]:
    """The pipeline of three streams: sharded tables (mp), replicated tables (dp), the dense model (default).

    The bottom MLP and the look-ups of dp run during the forward exchange; the top MLP waits for both; the
    gradient exchange runs during the backward of the bottom MLP and the reduction of dp; the keys of the next
    batch travel during this one.
    Source: EMBark (RecSys 2024), the pipeline of HugeCTR
    Limits: no communication -> the compute of a step;  see ``steady``
    """
    p = parts
    return (
        Task("lookup", "mp", p.lookup, (), ("next keys", "update"), COMPUTE),
        Task("forward exchange", "mp", p.forward, ("lookup",), (), NETWORK),
        Task("dp lookup", "dp", p.dp_lookup, (), ("dp update",), COMPUTE),
        Task("bottom", "default", p.bottom, (), ("dense update",), COMPUTE),
        Task("pool", "mp", p.pool, ("forward exchange",), (), COMPUTE),
        Task("next bucketize", "keys", p.bucketize, ("lookup",), (), COMPUTE),
        Task("next keys", "keys", p.keys, ("next bucketize", "forward exchange"), (), NETWORK),
        Task("top", "default", p.top, ("bottom", "pool", "dp lookup"), (), COMPUTE),
        Task("top backward", "default", p.top_backward, ("top",), (), COMPUTE),
        Task("unpool", "mp", p.unpool, ("top backward",), (), COMPUTE),
        Task("backward exchange", "mp", p.backward, ("unpool",), (), NETWORK),
        Task("bottom backward", "default", p.bottom_backward, ("top backward",), (), COMPUTE),
        Task("dp reduce", "dp", p.dp_reduce, ("top backward",), (), NETWORK),
        Task("dp update", "dp", p.dp_update, ("dp reduce",), (), COMPUTE),
        Task("dense reduce", "dense", p.dense_reduce, ("bottom backward",), (), NETWORK),
        Task("dense update", "dense", p.dense_update, ("dense reduce",), (), COMPUTE),
        Task("update", "mp", p.update, ("backward exchange",), (), COMPUTE),
    )


def forward_overlapped(parts: Parts) -> tuple[Task, ...]:
    """The forward half of one batch alone: ids are sent first; the bottom MLP and the look-ups of replicated
    tables run during the exchange of bags.

    Source: the forward tasks of ``overlapped``
    Limits: no communication -> the compute of a forward pass
    """
    p = parts
    return (
        Task("bucketize", "keys", p.bucketize, (), (), COMPUTE),
        Task("keys", "keys", p.keys, ("bucketize",), (), NETWORK),
        Task("lookup", "mp", p.lookup, ("keys",), (), COMPUTE),
        Task("forward exchange", "mp", p.forward, ("lookup",), (), NETWORK),
        Task("dp lookup", "dp", p.dp_lookup, ("lookup",), (), COMPUTE),
        Task("bottom", "default", p.bottom, ("lookup",), (), COMPUTE),
        Task("pool", "mp", p.pool, ("forward exchange",), (), COMPUTE),
        Task("top", "default", p.top, ("bottom", "pool", "dp lookup"), (), COMPUTE),
    )


def in_line(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The same tasks on one stream, where nothing overlaps and their times add up."""
    return tuple(Task(task.name, "default", task.duration_s, task.after, (), task.device) for task in tasks)
