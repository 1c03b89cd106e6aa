"""Cases of benchmarks/planner.py: table sets that are shipped, and many different tables that are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.engine.tables import PlanTables
from perfmodel.schema.workload import Table, TableSet

MODELS = ("mlperf-dlrm-dcnv2", "embark-t180", "embark-t200", "embark-t510", "embark-t7")
"""MLPerf's tables are EMBark's DLRM-DCNv2 as well: embark-dcnv2 has the same."""
GPUS = (8, 64, 128)
DRAWN = "distinct-"
MANY = (
    *((f"{DRAWN}{count}", 128) for count in (100, 400, 700, 1000)),
    ("distemb-colossal", 512),
    *(("torchrec-production", gpus) for gpus in (96, 256, 512)),
)
"""Sets of many tables, each with its GPUs."""
_SEED = 17
_DIMS = (16, 32, 64, 128, 256)
_ROWS_LOG10, _POOLING = (3.0, 7.3), (1.0, 50.0)
_SAMPLES, _MANY_SAMPLES = 65_536, 131_072  # of all ranks together


@dataclass(frozen=True)
class Question:
    """One case: which tables on how many GPUs, a forward pass or a step of training, samples of all ranks.

    many  whether it is one of many different tables: planners that only small cases can wait for are left out
    """

    model: str
    gpus: int
    training: bool
    samples: int
    many: bool = False

    @property
    def name(self) -> str:
        """As it is printed, and chosen by ``--case``."""
        return f"{self.model} x {self.gpus} {'training' if self.training else 'forward'}"

    @property
    def batch(self) -> int:
        """Samples of one rank."""
        return max(self.samples // self.gpus, 1)


def tables_of(model: str) -> PlanTables:
    """Shipped tables, or so many drawn ones: rows log-uniform, columns, pooling uniform."""
    if not model.startswith(DRAWN):
        return PlanTables.load(model)
    count = int(model.removeprefix(DRAWN))
    random = np.random.default_rng(_SEED + count)
    rows = np.rint(10 ** random.uniform(*_ROWS_LOG10, count)).astype(int)
    dims, pooling = random.choice(_DIMS, count), np.round(random.uniform(*_POOLING, count), 2)
    shapes = zip(rows.tolist(), dims.tolist(), pooling.tolist(), strict=True)
    return PlanTables.of(
        TableSet(model, tuple(Table(f"t{number}", *shape) for number, shape in enumerate(shapes)))
    )


def questions(
    models: Sequence[str] | None,
    gpus: Sequence[int] | None,
    objective: str | None,
    samples: int | None,
    parts: Sequence[str],
) -> list[Question]:
    """Those that were asked for, else all; ``parts`` have words of their names.

    Limits: no name has all words of one of them -> none
    """
    trained = {None: (False, True), "throughput": (True,), "latency": (False,)}[objective]
    shipped = [
        Question(model, count, training, samples or _SAMPLES)
        for model in models or MODELS
        for count in gpus or GPUS
        for training in trained
    ]
    distinct = [
        Question(model, count, training, samples or _MANY_SAMPLES, many=True)
        for model, count in MANY
        for training in trained
    ]
    chosen = shipped if models or gpus else [*shipped, *distinct]
    return [
        question for question in chosen if any(set(words.split()) <= list_words(question) for words in parts)
    ]


def list_words(question: Question) -> set[str]:
    """Of a name: ``distinct-400`` is two, and one as well."""
    words = question.name.split()
    return {*words, *(word for name in words for word in name.split("-"))}
