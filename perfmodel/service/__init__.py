"""A service: requests arrive, form batches and are served; ``load`` is its Python function."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import BadInputError
from perfmodel.question.passes import FOLLOWED
from perfmodel.service.arrivals import Arrivals, Poisson

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.service.served import ServedPass
    from perfmodel.service.service_load import ServiceLoad

_OF_SERVICE = ("replicas", "batch", "wait_s", "overlap", "samples")


def load(
    qps: float | None = None,
    p99_s: float | None = None,
    *,
    arrivals: Arrivals | None = None,
    stragglers: bool = True,
    requests: int = FOLLOWED,
    host: str | None = None,
    sharding: str | None = None,
    prices: str | Path | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Latencies of a service against its load: one row per load, up to the highest load within the limit.

    qps      requests per second; None: the highest load of the replicas;  p99_s  limit of the 99th percentile
             [s]
    options  replicas, batch (samples per GPU in a full batch), wait_s, overlap, samples (per request); by
             default the best of several; all other options as of ``perfmodel.project``
    arrivals  ``Poisson(seed)`` or ``read_arrivals(path)``;  requests  number of requests that are
             simulated at each load
    host      eager, compiled or graph: includes the host that launches the pass; None: the GPUs alone
    sharding  of the pass that is served: an option of ``project``; None or best: the fastest that fits
    prices    file of your prices: ``cost`` of the answer then has money, beside its machine-hours
    Columns: load_per_s, utilisation, requests_per_batch, p50_s, p95_s, p99_s, mean_s, requests_inside, and
    the parts of p99_s; the whole answer is in ``frame.attrs["answer"]`` as plain data.
    Limits: no ``p99_s``, or a load that cannot be served -> BadInputError with the highest load
    """
    from perfmodel.question.groups import DEFAULT_MACHINE
    from perfmodel.schema.machine import load_machine
    from perfmodel.schema.prices import read_prices
    from perfmodel.service.hourly import hourly_cost

    box = options.get("machine", DEFAULT_MACHINE)
    machine = (load_machine(box) if isinstance(box, str) else box).name
    known = None if prices is None else read_prices(Path(prices), machine)
    answer = answered(qps, p99_s, arrivals, stragglers, requests, host, sharding, **options)
    frame = answer.to_frame()
    frame.attrs["answer"] = {**answer.to_dict(), "cost": hourly_cost(answer, machine, known).to_dict()}
    return frame


def answered(
    qps: float | None,
    p99_s: float | None,
    arrivals: Arrivals | None,
    stragglers: bool,
    requests: int,
    host: str | None = None,
    sharding: str | None = None,
    **options: Any,
) -> ServiceLoad:
    """The answer object behind ``load``."""
    from functools import partial

    from perfmodel.passes.schemes import way_named
    from perfmodel.projections import project_one
    from perfmodel.service.best_pass import BEST, Served, sharded_load
    from perfmodel.service.served import LARGEST_BATCH, projected_pass
    from perfmodel.service.service_load import service_load
    from perfmodel.service.sizing import ServiceQuestion
    from perfmodel.service.stragglers import NONE, ranks_behind, spread_of

    if p99_s is None or not p99_s > 0:
        raise BadInputError(
            f"p99_s {p99_s} is not a limit.", "give a time above 0 s, for example p99_s=10e-3."
        )
    if qps is not None and not qps > 0:
        raise BadInputError(f"qps {qps} is not a load.", "give requests per second, above 0.")
    own = {name: options.pop(name) for name in _OF_SERVICE if options.get(name) is not None}
    pass_of = {name: value for name, value in options.items() if name not in _OF_SERVICE}
    way = BEST if sharding in (None, BEST) else way_named(str(sharding), BEST)
    sized = {"batch": min(own["batch"], LARGEST_BATCH)} if "batch" in own else {}
    first = project_one(**pass_of, **sized)
    calibration = None if pass_of.get("calibration") is None else str(pass_of["calibration"])
    rest = {name: value for name, value in pass_of.items() if name != "gpus"}

    def answer(served: ServedPass) -> ServiceLoad:
        spread = spread_of(calibration) if stragglers else NONE
        measured = ranks_behind(first.setting, served)
        return service_load(
            ServiceQuestion(
                served=served,
                limit_s=p99_s,
                qps=qps,
                arrivals=arrivals or Poisson(),
                requests=requests,
                spread=spread,
                measured=measured,
                **own,
            )
        )

    return sharded_load(
        way,
        first,
        lambda gpus, batch: project_one(**rest, gpus=gpus, batch=batch),
        partial(projected_pass, rest),
        Served(
            host=host,
            calibration=calibration,
            answer=answer,
            samples_per_s=None if qps is None else qps * own.get("samples", 1.0),
            limit_s=p99_s,
            most=own.get("batch", math.inf),
        ),
    )
