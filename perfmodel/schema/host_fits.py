"""Host values in a calibration: times to issue a pass, and the host's memory as GPUs read it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import model_validator

from perfmodel.schema.evidence import Clock
from perfmodel.schema.intervals import Interval, LogSd, Share, Whole
from perfmodel.schema.limits import limits_of
from perfmodel.schema.strict import Strict

HOST_KEYS = ("host_call_s", "host_operator_s", "host_launch_s", "host_collective_s", "graph_launch_s")
"""Service constants that samples can determine: Python call, operator, launch, collective, graph."""


class IssueTimes(Strict):
    """Times that the host takes to issue work, each with its 95 % interval.

    values  by key of a service constant, one of ``HOST_KEYS``; they replace the shipped values
    processor  name of the host's processor;  sample_count  number of points behind the values
    """

    values: Mapping[str, Interval]
    processor: str = ""
    sample_count: Whole

    @model_validator(mode="after")
    def _known(self) -> IssueTimes:
        if unknown := [key for key in self.values if key not in HOST_KEYS]:
            raise ValueError(f"unknown times of the host {unknown}")
        longest = limits_of("sample")["time_s"].most
        if long := [key for key, interval in self.values.items() if interval.value > longest]:
            raise ValueError(f"values.{long[0]}.value: at most {longest:g} s")
        return self


TIER_KEYS = (
    "link_bytes_per_s",
    "host_latency_s",
    "link_header_bytes",
    "link_sector_bytes",
    "link_row_bytes",
    "copy_to_device_bytes_per_s",
    "copy_to_host_bytes_per_s",
)
"""Values of the host tier that samples can determine. ``link_bytes_per_s`` is f C of ``tiers.row_rate``: the
link rate that reads of rows reach, with headers."""


class HostTier(Strict):
    """Host memory as one GPU reads it over its link: measured values, each with its 95 % interval.

    values  by name, one of ``TIER_KEYS``;  untold  names of values that the samples do not determine
    log_sd, loo_median, loo_p90  errors of gathers from host memory that were left out of the fit
    low_row_bytes, high_row_bytes  range of timed rows;  ranks  GPUs of the node that read at once
    """

    values: Mapping[str, Interval]
    untold: list[str] = []
    log_sd: LogSd
    sample_count: Whole
    loo_median: Share | None
    loo_p90: Share | None
    low_row_bytes: Whole
    high_row_bytes: Whole
    ranks: Whole
    clock: Clock

    @model_validator(mode="after")
    def _known(self) -> HostTier:
        if unknown := [key for key in (*self.values, *self.untold) if key not in TIER_KEYS]:
            raise ValueError(f"unknown values of the host tier {unknown}")
        for key, name in (
            ("host_latency_s", "host_latency_s"),
            ("link_bytes_per_s", "host_link_bytes_per_s"),
        ):
            refused = limits_of("machine")[name].refusal(self.values[key].value) if key in self.values else ""
            if refused:
                raise ValueError(f"values.{key}: {refused}")
        return self
