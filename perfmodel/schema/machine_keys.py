"""Values of a machine by key, with unit and meaning."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Valued(Protocol):
    """Protocol of a number with its unit."""

    @property
    def value(self) -> float:
        """The number in SI."""

    @property
    def unit(self) -> str:
        """One of ``units.QUANTITY_UNITS``."""


class ValueKey(NamedTuple):
    """What a value of a machine or chip must be.

    unit  its unit;  zero  whether it may be 0, which means "none";  meaning  for messages and lists
    required  whether each machine has it
    """

    unit: str
    zero: bool
    meaning: str
    required: bool = True

    def check(self, key: str, quantity: Valued) -> None:
        """Raises ValueError unless the value is allowed for ``key``."""
        if quantity.unit != self.unit:
            raise ValueError(f"values.{key}.unit: must be {self.unit!r}, not {quantity.unit!r}")
        if quantity.value == 0 and not self.zero:
            raise ValueError(f"values.{key}.value: must be more than 0")
        if self.unit == "count" and not quantity.value.is_integer():
            raise ValueError(f"values.{key}.value: must be a whole number, not {quantity.value:g}")


KEYS: dict[str, ValueKey] = {
    "hbm_bytes": ValueKey("byte", False, "memory of one GPU"),
    "hbm_bytes_per_s": ValueKey("byte/s", False, "datasheet memory bandwidth of one GPU"),
    "l2_bytes": ValueKey("byte", False, "L2 cache of one GPU"),
    "l2_bytes_per_s": ValueKey("byte/s", False, "L2 read bandwidth of one GPU"),
    "sm_count": ValueKey("count", False, "streaming multiprocessors of one GPU"),
    "gpus_per_node": ValueKey("count", False, "GPUs of one node (one operating system)"),
    "nvlink_domain_gpus": ValueKey("count", False, "GPUs that scale-up links (NVLink, xGMI) join; 1 = none"),
    "nvlink_bytes_per_s": ValueKey("byte/s", True, "scale-up links of one GPU, one direction; 0 = none"),
    "pcie_bytes_per_s": ValueKey("byte/s", False, "PCIe of one GPU, one direction, datasheet"),
    "nic_bytes_per_s": ValueKey("byte/s", False, "network line rate per GPU, one direction"),
    "nics_per_node": ValueKey("count", False, "network interfaces of one node"),
    "gather_bytes_per_s": ValueKey("byte/s", False, "memory bandwidth that a gather of long rows reaches"),
    "launch_floor_s": ValueKey("s", False, "time of a gather kernel with almost nothing to do"),
    "sector_bytes": ValueKey("byte", False, "smallest read from memory"),
    "row_access_bytes": ValueKey("byte", False, "what reading a short row takes: a line of the cache"),
    "bag_factor": ValueKey("ratio", False, "a byte of a bag that is written over one that is read"),
    "bucketize_floor_s": ValueKey("s", False, "time to sort almost no ids by owner"),
    "bucketize_bytes_per_s": ValueKey("byte/s", False, "bytes of ids sorted by owner per second"),
    "local_sum_bytes_per_s": ValueKey(
        "byte/s", False, "bytes read and written per second by a sum of buffers"
    ),
    "host_bytes": ValueKey("byte", False, "memory of one node's hosts", False),
    "host_link_bytes_per_s": ValueKey(
        "byte/s", False, "link from a GPU to its host (PCIe, C2C), one direction, datasheet", False
    ),
}
"""Values of a machine; a file gives all that are required."""
