"""Which algorithm and protocol does NCCL take: the least of its own table, or the handicaps of our law?

Run:    python benchmarks/nccl_table.py [--only SELECTOR ...]      (1 minute a selector)
The law tells what each (algorithm, protocol) takes and lets NCCL take the one with the least c_k t_k, c_k
fitted (docs/model.md#nccl-takes-what-its-own-table-says). Here the same law is fitted and judged with another
selector: the least of NCCL's own estimates (src/graph/tuning.cc, ncclTopoGetAlgoTime) by its own constants
(data/priors/nccl_tuning.json), times c_k. Two things that the table depends on are in no log, so each is
tried: the host's CPU (Intel or AMD) and whether LL128 may cross nodes. Prints, for each selector, how far
clusters and node counts that a fit did not see are predicted, across nodes where nothing near was measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfmodel import resources
from perfmodel.collectives import rates, spreads, stored
from perfmodel.fit import links
from perfmodel.model import collectives, laws
from perfmodel.report.terminal import table
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import load_priors
from perfmodel.validate import left_out, measured

Floats = npt.NDArray[np.float64]
SELECTORS = {
    "handicaps": None,
    "Intel": ("x86_intel", False),
    "Intel, LL128": ("x86_intel", True),
    "AMD": ("x86_amd", False),
    "AMD, LL128": ("x86_amd", True),
}
_LL_ROW = {"x86_intel": "volta_row", "x86_amd": "ampere_row"}  # rows of the table that the host selects
_GENERATIONS = {"a100": "ampere", "b200": "blackwell", "b300": "blackwell"}
_LINK_SHARE, _CARD_SHARE = 0.8, 0.96  # of the datasheet: what NCCL's own link classes say
_SEVERAL_CHANNELS, _ONE_NODE_CHANNELS = 8, 16
_FIRST_BYTES = 64
_PLATEAU_RATIO, _PLATEAU_BYTES = 1.4, 64


@lru_cache(maxsize=1)
def tuning() -> dict[str, Any]:
    """NCCL's constants."""
    text = resources.data_path("priors", "nccl_tuning.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@dataclass(frozen=True)
class Selector:
    """NCCL's table for one machine: what it expects of each candidate."""

    machine: Machine
    host: str
    ll128: bool

    def expected_s(self, collective: str, group: laws.Group, payload_bytes: Floats) -> Floats:
        """NCCL's estimates [s], shape (candidates, sizes), in the order of ``laws.ring_tree_candidates``."""
        rings = self._rings(collective, group, payload_bytes)
        more = []
        if group.domains == group.gpus > 1 and collective in ("all_gather", "reduce_scatter"):
            more.append(self._pat(collective, group, payload_bytes))
        if collective == "all_reduce":
            more.append(self._trees(group, payload_bytes))
            if self.machine.links.nvls and self.machine.nvlink_domain_gpus > 1:
                more.append(self._nvls(group, payload_bytes))
        found = np.concatenate([rings, *more])
        if group.domains > 1 and not self.ll128:
            found[[1, 4] if collective == "all_reduce" else [1]] = np.inf
        return found

    @property
    def _generation(self) -> str:
        return next((g for key, g in _GENERATIONS.items() if key in self.machine.name), "hopper")

    @property
    def _links(self) -> str:
        return "nvlink" if self.machine.nvlink_domain_gpus > 1 else "pcie"

    def _cap(self, what: str, group: laws.Group) -> float:
        rates = tuning()["channel_max_bytes_per_s"][what][self._generation]
        channels = _SEVERAL_CHANNELS if group.domains > 1 else _ONE_NODE_CHANNELS
        return float(channels * rates[min(group.domains, len(rates)) - 1])

    def _ll_max(self, group: laws.Group) -> float:
        rows = tuning()["ll_max_bytes_per_s"]
        row = rows[f"{self._generation}_row" if group.domains == 1 else _LL_ROW[self.host]]
        return float(row[min(group.domains, len(row)) - 1])

    def _bus(self, group: laws.Group) -> float:
        link = _LINK_SHARE * self.machine.value(f"{self._links}_bytes_per_s")
        if group.domains == 1:
            return link
        return min(link, group.domain_gpus * _CARD_SHARE * self.machine.value("nic_bytes_per_s"))

    def _rings(self, collective: str, group: laws.Group, sizes: Floats) -> Floats:
        steps = tuning()["step_latency_s"]
        m, n = collectives.ring_steps(collective, group.gpus, group.domains)
        inside = np.array(steps[self._links]["Ring"])
        crossing = np.array(steps["network"]["Ring" if group.domain_gpus > 1 else "Tree"])
        if group.domains > 1:
            overhead = tuning()["network_overhead_s"][self.host]
            inside = np.maximum(
                inside, overhead * np.array([1, 1, tuning()["network_overhead_simple_ratio"]])
            )
        latency = np.array(tuning()["base_latency_s"]["Ring"]) + m * inside + n * crossing
        bus = self._bus(group)
        rate = np.array(
            [min(self._ll_max(group), bus / 2), min(0.92 * bus, self._cap("ring_ll128", group)), bus]
        )
        each = np.tile(latency[:, None], (1, sizes.size))
        if collective == "all_reduce" and group.domains > 1:
            large = sizes / (2 * _SEVERAL_CHANNELS * group.gpus) >= _PLATEAU_BYTES
            each[-1, large] *= _PLATEAU_RATIO
        return np.asarray(each + sizes * collectives.bus_factor(collective, group.gpus) / rate[:, None])

    def _pat(self, collective: str, group: laws.Group, sizes: Floats) -> Floats:
        steps = self.machine_steps
        hops = collectives.pat_hops(
            group.domains,
            tuning()["step_latency_s"]["network"]["PAT"][-1],
            steps.pat_overlap,
            steps.pat_rank_s,
        )
        moved = (
            sizes * collectives.bus_factor(collective, group.gpus) / (steps.pat_fraction * self._bus(group))
        )
        return np.asarray(tuning()["base_latency_s"]["PAT"][-1] + hops + moved)[None]

    @property
    def machine_steps(self) -> laws.StepConstants:
        """Steps of this machine's links."""
        return stored.step_constants(self.machine, load_priors())

    def _trees(self, group: laws.Group, sizes: Floats) -> Floats:
        steps, several = tuning()["step_latency_s"], group.domains > 1
        depth = int(np.log2(group.domains))
        inside, crossing = (np.array(steps[link]["Tree"]) for link in (self._links, "network"))
        levels = 2 * ((group.domain_gpus - 1) * inside + depth * crossing)
        latency = np.array(tuning()["base_latency_s"]["Tree"]) + levels
        wide = min(0.92 * self._bus(group), self._cap("tree", group))
        lines = min(wide * (120 / 128 if several else 7 / 9), self._cap("tree_ll128", group))
        rate = np.array([min(wide / 3.8, self._ll_max(group)), lines, wide])
        octave = np.log2(np.maximum(sizes / _FIRST_BYTES, 1)).astype(int)
        corrections = [tuning()["tree_correction_ratio"][p] for p in tuning()["protocols"]]
        correction = np.array([np.array(row)[np.minimum(octave, len(row) - 1)] for row in corrections])
        return np.asarray(latency[:, None] + 2 * sizes / (rate[:, None] * correction))

    def _nvls(self, group: laws.Group, sizes: Floats) -> Floats:
        steps = tuning()["step_latency_s"]
        inside = 2 * _LINK_SHARE * self.machine.value("nvlink_bytes_per_s")
        inside *= tuning()["nvls_efficiency_ratio"][self._generation]
        latency = steps["nvlink"]["NVLS"][-1]
        if group.domains == 1:
            return np.asarray(latency + 2 * sizes * (group.gpus - 1) / group.gpus / inside)[None]
        across = self._bus(group) * (2 if group.domains == 2 else 1)
        rate = min(inside, across, self._cap("nvls_tree", group))
        latency += 2 * int(np.log2(group.domains)) * steps["network"]["NVLSTree"][-1]
        return np.asarray(latency + 2 * sizes / rate)[None]


def by_table(host: str, ll128: bool) -> Any:
    """``laws.ring_tree_time`` with NCCL's table as the selector. The machine is found by its steps."""
    machines: dict[int, Machine] = {}
    made = stored.step_constants

    def remembered(machine: Machine, priors: Any) -> laws.StepConstants:
        steps = made(machine, priors)
        machines[id(steps)] = machine
        kept.append(steps)
        return steps

    kept: list[laws.StepConstants] = []

    def time(
        u: laws.Unknowns, steps: laws.StepConstants, collective: str, group: laws.Group, payload: Floats
    ) -> Floats:
        sizes = np.asarray(payload, float)
        found = laws.ring_tree_choice(u, steps, collective, group, sizes)
        selector = Selector(machines[id(steps)], host, ll128)
        rows = selector.expected_s(collective, group, sizes.ravel())
        expected = [
            row.reshape(sizes.shape) * each.choice for row, each in zip(rows, found.candidates, strict=True)
        ]
        shares = collectives.chosen_shares(expected, steps.choice_sharpness)
        return np.asarray(replace(found, expected_s=expected, shares=shares).time_s)

    return remembered, time


def judged() -> pd.DataFrame:
    """Points across nodes that no cell near was measured for: of clusters, and of node counts, left out."""
    clusters, nodes = left_out.clusters_left_out(), left_out.large_left_out()
    points = pd.concat([clusters.assign(left="clusters"), nodes.assign(left="node counts")])
    return points[(points["where"] == "across") & ~points["known"]]


def run(name: str) -> None:
    """Judge one selector; prints JSON lines."""
    option = SELECTORS[name]
    if option is None:
        points = judged()
    else:
        remembered, time = by_table(*option)
        with (
            patch.dict(laws.LINK_LAWS, {"ring_tree": laws.LinkLaw(laws.RING_TREE, time)}),
            patch.object(spreads, "step_constants", remembered),
            patch.object(links, "step_constants", remembered),
            patch.object(rates, "step_constants", remembered),
        ):
            points = judged()
    points = points[points["family"] != "all_to_all"]
    for key, rows in points.groupby(["left", "family", "size"], observed=True, sort=False):
        one = measured.summary(rows.assign(all="all"), ["all"]).iloc[0]
        found = (100 * float(one["median"]), 100 * float(one["inside"]))
        print(json.dumps([*key, int(one["n"]), *found]))


def main() -> int:
    """Run every selector in a process of its own; print them side by side."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(SELECTORS), default=list(SELECTORS))
    parser.add_argument("--one", choices=list(SELECTORS), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        run(chosen.one)
        return 0
    cells: dict[tuple[str, str, str, int], dict[str, str]] = {}
    for name in chosen.only:
        line = [sys.executable, __file__, "--one", name]
        out = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout
        for row in map(json.loads, out.splitlines()):
            cells.setdefault((*row[:3], row[3]), {})[name] = f"{row[4]:.1f} ({row[5]:.0f})"
    order = ("floor", "middle", "bulk")
    rows = [
        [*map(str, key), *(cells[key].get(name, "") for name in chosen.only)]
        for key in sorted(cells, key=lambda key: (key[0], key[1], order.index(key[2])))
    ]
    print("median error in % (and how many of 100 points are inside their 95 % band)")
    print(table(["left out", "", "", "n", *chosen.only], rows, left=(0, 1, 2)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
