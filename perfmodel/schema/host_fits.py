"""What a calibration says of the host that issues a pass: times measured on the machine itself."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, model_validator

from perfmodel.schema.intervals import STRICT, Interval, Whole
from perfmodel.schema.limits import limits_of

HOST_KEYS = ("host_call_s", "host_operator_s", "host_launch_s", "host_collective_s", "graph_launch_s")
"""Service constants that samples can tell: of a Python call, an operator, a launch, a collective, a graph."""


class HostTimes(BaseModel):
    """Times of what the host does, each with its 95 % interval.

    values  by service constant, of ``HOST_KEYS``; they stand for the shipped ones
    processor  of the host;  sample_count  points that they are of
    """

    model_config = STRICT

    values: Mapping[str, Interval]
    processor: str = ""
    sample_count: Whole

    @model_validator(mode="after")
    def _known(self) -> HostTimes:
        if unknown := [key for key in self.values if key not in HOST_KEYS]:
            raise ValueError(f"unknown times of the host {unknown}")
        longest = limits_of("sample")["time_s"].most
        if long := [key for key, interval in self.values.items() if interval.value > longest]:
            raise ValueError(f"values.{long[0]}.value: at most {longest:g} s")
        return self
