"""Values of a chip that no data sheet tells, fitted to what benchmarks/one_core.py measured on it.

Run:    python benchmarks/one_core.py --out one_core.jsonl      (on the GPU; other --batch and --model append)
        python benchmarks/one_core_fit.py one_core.jsonl --out mine.toml [--chip h200-sxm]
Fitted: latencies of memory, L2 and the core's own cache, the rate of the L2 (``RATES``), and how many
channels and slices the addresses are spread over (``COUNTS``), by the model that ``perfmodel`` ships:
relative residuals, soft-l1 loss, counts by trying some around the best, in turn. Cores and the size of the L2
are those that the GPU reported. A value that the samples do not tell (an interval wider than itself; another
count that is as good) stays the chip's. Prints each value before and after, and how far the model is off
before and after. Exit code 2 for samples of several GPUs, or too few.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from one_core import IDS, OWNED, Predicted, Sample
from pydantic import ValidationError

from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.fit.robust import half_widths, solve
from perfmodel.schema.chip import Chip, chip_file, load_chip, read_chip
from perfmodel.schema.files import invalid_fields
from perfmodel.schema.gate import read_text
from perfmodel.schema.runs import REHEARSAL
from perfmodel.units import format_number

RATES = ("row_latency_s", "cache_latency_s", "core_cache_latency_s", "cache_bytes_per_s")
COUNTS = ("channels", "cache_slices")
FACTORS = (1 / 3, 1 / 2, 2 / 3, 3 / 4, 4 / 3, 3 / 2, 2, 3)
"""Counts that are tried: these parts of the best so far."""

FARTHEST = float(np.log(10))
LEAST_GAIN = 1.05
"""Loss with the chip's own count over that with another, from which on the samples tell it."""

REPORTED = {"cores": "cores", "cache_bytes": "cache_bytes"}


def read_samples(path: Path) -> list[Sample]:
    """The samples of one GPU. Limits: a bad line, several GPUs, fewer than values -> BadInputError"""
    found = []
    for number, line in enumerate(read_text(path, "samples").splitlines(), 1):
        try:
            found.append(Sample.model_validate_json(line))
        except ValidationError as error:
            raise invalid_fields(error, "samples", f"{path}, line {number}") from None
    if any(REHEARSAL in one.gpu for one in found):
        raise BadInputError(f"{path} was written by a rehearsal: its times are made up.", "measure on a GPU.")
    gpus = {(one.gpu, one.cores, one.cache_bytes) for one in found}
    if len(gpus) != 1 or len(found) <= len(RATES):
        raise BadInputError(
            f"{path} has {len(found)} samples of {len(gpus)} GPUs.",
            f"one GPU, and more samples than the {len(RATES)} values that are fitted.",
        )
    return found


class Fit:
    """A chip and samples of it, which are compared with what the model predicts for other values."""

    def __init__(self, chip: Chip, samples: Sequence[Sample]) -> None:
        reported = {key: getattr(samples[0], name) for key, name in REPORTED.items()}
        self.chip = chip.with_overrides(reported, source=samples[0].gpu)
        self.groups: dict[str, list[Sample]] = defaultdict(list)
        for one in samples:
            key = one.model_dump_json(include={"tables", "batch", "ids", "local_bytes"})
            self.groups[key].append(one)

    def logs(self, values: Mapping[str, float]) -> np.ndarray:
        """ln(predicted / measured) of each sample with some values of the chip replaced.

        A cache that would answer later than what it spares is taken to answer as late.
        """
        given = dict(values)
        for near, far in (("cache_latency_s", "row_latency_s"), ("core_cache_latency_s", "cache_latency_s")):
            behind = given.get(far, self.chip.value(far))
            given[near] = min(given.get(near, self.chip.value(near)), behind)
        changed, found = self.chip.with_overrides(given), []
        for group in self.groups.values():
            one = group[0]
            cost = Predicted(changed, one.shapes, one.batch, one.local_bytes, IDS[one.ids])
            for each in group:
                seconds = cost.items(each.items, in_order=each.plan != OWNED).seconds
                found.append(float(np.log(seconds / each.time_s)))
        return np.array(found)

    def rates(self, counts: Mapping[str, float], start: Mapping[str, float]) -> tuple[dict[str, float], Any]:
        """The best values of ``RATES`` beside these counts."""
        own = np.log([self.chip.value(key) for key in RATES])
        begin = np.log([start.get(key, self.chip.value(key)) for key in RATES])
        bounds = [(q - FARTHEST, q + FARTHEST) for q in own]

        def residual(q: np.ndarray) -> np.ndarray:
            return self.logs({**counts, **dict(zip(RATES, np.exp(q).tolist(), strict=True))})

        best = solve(residual, begin.tolist(), bounds)
        return dict(zip(RATES, np.exp(best.x).tolist(), strict=True)), best

    def loss(self, values: Mapping[str, float]) -> float:
        """Sum of the squares of the logarithms, of large ones less."""
        z = (self.logs(values) / 0.1) ** 2
        return float(np.sum(2 * (np.sqrt(1 + z) - 1)))

    def fitted(self) -> dict[str, float]:
        """Values that the samples tell."""
        counts = {key: self.chip.value(key) for key in COUNTS}
        rates, best = self.rates(counts, {})
        for key in COUNTS:
            tried = {round(counts[key] * factor) for factor in FACTORS} - {0}
            loss = {count: self.loss({**rates, **counts, key: float(count)}) for count in tried}
            least = min(loss, key=loss.__getitem__)
            if loss[least] * LEAST_GAIN < self.loss({**rates, **counts}):
                counts[key] = float(least)
                rates, best = self.rates(counts, rates)
        wide = half_widths(best)
        told = {key: rates[key] for key, half in zip(RATES, wide, strict=True) if np.sinh(half) < 1}
        return told | {key: n for key, n in counts.items() if n != self.chip.value(key)}


def changed_file(text: str, values: Mapping[str, float], source: str, name: str) -> str:
    """The TOML of a chip with another name and some values replaced, each with this source."""
    lines, key = [], ""
    for line in text.splitlines():
        word = line.partition(" = ")[0]
        if line.startswith("[values."):
            key = line.removeprefix("[values.").removesuffix("]")
        if key in values and word in ("value", "source", "why", "evidence"):
            said: Any = {"value": values[key], "source": source, "evidence": "measured"}.get(word)
            why = (
                "the device reports it"
                if key in REPORTED
                else "fitted to it with the model of perfmodel chips"
            )
            said = why if said is None else said
            line = f"{word} = {json.dumps(said)}"
        elif not key and word == "name":
            line = f"name = {json.dumps(name)}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    """Exit code 2 for samples that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--chip", default="h200-sxm", help="a shipped chip: where the fit starts")
    parser.add_argument("--out", type=Path, required=True, help="the chip with the fitted values (TOML)")
    given = parser.parse_args()
    try:
        fit = Fit(load_chip(given.chip), read_samples(given.samples))
        text = chip_file(given.chip)
    except PerfmodelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = fit.fitted()
    for key in (*RATES, *COUNTS):
        after = f"{format_number(found[key])}" if key in found else "not told by these samples: stays"
        print(f"{key:<22} {format_number(fit.chip.value(key)):>10}  {after}")
    for when, values in (("before", {}), ("after", found)):
        off = np.expm1(np.abs(fit.logs(values)))
        print(f"off {when:<6} median {100 * np.median(off):.1f} %, most {100 * off.max():.1f} %")
    gpu = next(iter(fit.groups.values()))[0].gpu
    reported = {key: fit.chip.value(key) for key in REPORTED}
    made = changed_file(text, {**reported, **found}, f"benchmarks/one_core.py on {gpu}", given.out.stem)
    given.out.write_text(made, encoding="utf-8")
    read_chip(given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
