"""Reads the options of ``perfmodel load`` and turns them into a question about a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import ROW_WISE
from perfmodel.question.passes import LoadOptions
from perfmodel.units import counted

if TYPE_CHECKING:
    from perfmodel.service.sizing import ServiceQuestion


def served_sharding(name: str | None, plan: Path | None, reduction: str, **memory: str | None) -> str:
    """The sharding of the service: the typed name, or ``best`` without one.

    memory  the options that place rows in other memory, by name; None: not typed
    Limits: unknown names, ``all``, a plan or options that imply another sharding or none -> BadInputError
    """
    from perfmodel.cli.workload import ALL, checked_sharding
    from perfmodel.service.best_pass import BEST

    if name is None:
        return BEST
    if plan is not None:
        raise BadInputError("--plan and --sharding cannot be combined.", "a plan is a sharding.")
    if name.strip().lower() == ALL:
        raise BadInputError("--sharding all is many passes.", "a service runs one: --sharding best.")
    return checked_sharding(name, reduction, **memory, more=BEST) or ROW_WISE


@dataclass(frozen=True, kw_only=True)
class TypedLoad:
    """The options of ``perfmodel load`` in SI units; None: not typed.

    limit_s  of the p99;  qps  requests per second;  wait_s  of the first request for others
    samples  per request;  arrivals  a file of arrival times;  requests  to simulate
    """

    limit_s: float
    qps: float | None
    batch: int | None
    wait_s: float | None
    samples: float
    replicas: int | None
    overlap: bool | None
    arrivals: Path | None
    seed: int
    requests: int

    @staticmethod
    def of(typed: Mapping[str, Any]) -> TypedLoad:
        """Read typed options. typed  their values by name

        Limits: no --p99, a wait as long as the limit, numbers that cannot be used -> BadInputError
        """
        if typed["p99"] is None:
            raise BadInputError("within what time?", "give --p99, e.g. --p99 10ms")
        values = LoadOptions.values(typed)
        found = TypedLoad(**{field.name: values[field.name] for field in fields(TypedLoad)})
        if found.wait_s is not None and found.wait_s >= found.limit_s:
            raise BadInputError(
                f"--wait {typed['wait']} is not shorter than --p99 {typed['p99']}: a single request "
                "would be late before its pass begins.",
                "give a shorter --wait, e.g. --wait 0s.",
            )
        return found

    def question(self, served: Any, spread: Any, measured: Any) -> ServiceQuestion:
        """The question about a service.

        served  its pass;  spread  delays of ranks;  measured  ranks on which the steps' mean times were
                measured
        Limits: a wait with a batch of 1, a batch too large -> BadInputError
        """
        from perfmodel.service.arrivals import Poisson, read_arrivals
        from perfmodel.service.sizing import ServiceQuestion

        arrivals = Poisson(self.seed) if self.arrivals is None else read_arrivals(self.arrivals, self.seed)
        found = ServiceQuestion(
            served=served,
            limit_s=self.limit_s,
            qps=self.qps,
            replicas=self.replicas,
            batch=self.batch,
            wait_s=self.wait_s,
            overlap=self.overlap,
            samples=self.samples,
            arrivals=arrivals,
            requests=self.requests,
            spread=spread,
            measured=measured,
        )
        if self.batch is not None and self.batch > served.largest_batch:
            raise BadInputError(
                f"--batch {self.batch} does not fit the memory of {counted(served.gpus, 'GPU')}.",
                f"at most {served.largest_batch}, or more --gpus.",
            )
        where, size = counted(served.gpus, "GPU"), self.batch
        if size is not None and self.wait_s and found.replica(1).rule(size, 0.0, False).requests == 1:
            raise BadInputError(
                f"--wait without a batch: --batch {self.batch} on {where} is one request.",
                "leave --wait out, or give a larger --batch.",
            )
        if self.qps is None and arrivals.rate_per_s is not None:
            return replace(found, qps=arrivals.rate_per_s)
        return found
