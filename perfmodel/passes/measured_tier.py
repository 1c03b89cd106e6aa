"""A machine whose host memory was measured: the calibration's values instead of the machine file's."""

from __future__ import annotations

from perfmodel.schema.calibration import Calibration
from perfmodel.schema.constants import Constants
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Machine, Quantity
from perfmodel.schema.machine_keys import ALL_KEYS

LINK, FRACTION = "host_link_bytes_per_s", "link_packet_fraction"


def with_host_tier(machine: Machine, constants: Constants, own: Calibration) -> tuple[Machine, Constants]:
    """The machine and the constants with the measured link rate, latency, header and sector of host memory.

    own  the calibration that measured them
    The rate that reads of rows reach is measured as one number, f C of ``tiers.row_rate``: C is set to that
    rate and f to 1. For a what-if of the link, f is the measured rate over the machine's own C instead.
    Limits: nothing was measured -> both unchanged;  a user's own what-ifs -> kept
    """
    tier = own.host_tier
    if tier is None:
        return machine, constants
    source = f"calibration {own.calibration_id}"
    why = f"fitted to {tier.sample_count} gathers of rows in host memory, {tier.ranks} GPUs at once"

    def measured(value: float, unit: str, log_sd: float | None = None) -> Quantity:
        known = {"value": value, "unit": unit, "source": source, "why": why, "log_sd": log_sd}
        return Quantity.model_validate({**known, "evidence": Evidence.MEASURED})

    found, replaced = dict(machine.values), {}
    link = tier.values.get("link_bytes_per_s")
    if link is not None:
        fraction = link.value / machine.original(LINK) if LINK in machine.overrides else 1.0
        replaced[FRACTION] = measured(fraction, "ratio", tier.log_sd)
        if LINK not in machine.overrides:
            found[LINK] = measured(link.value, ALL_KEYS[LINK].unit)
    latency = tier.values.get("host_latency_s")
    if latency is not None and "host_latency_s" not in machine.overrides:
        found["host_latency_s"] = measured(latency.value, ALL_KEYS["host_latency_s"].unit)
    for key in ("link_header_bytes", "link_sector_bytes", "link_row_bytes"):
        if key in tier.values:
            replaced[key] = measured(tier.values[key].value, "byte")
    return machine.model_copy(update={"values": found}), constants.replaced(replaced)
