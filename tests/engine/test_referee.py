"""Bytes, memory and busiest ranks of random plans, beside those that a referee counts id by id."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.id_by_id import CountedTable, Referee
from oracles.plan_files import Case, Entry, draw_entry

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.plan_files import plan_from
from perfmodel.schema.workload import Table, TableSet, zipf

STATE = {"none": (0, 0), "rowwise-adagrad": (0, 4), "adagrad": (4, 0), "adam": (8, 0)}
COUNTED = 0.01  # of the bytes: four times what draws by chance leave
IDS = 200_000  # that each holder gets
VERY_SKEWED = 1.05
BATCH = 1024


def random_case(random: np.random.Generator) -> tuple[Case, Referee]:
    """3 to 5 tables on 4, 6 or 8 GPUs, in one NVLink domain or several."""
    gpus, skew = int(random.choice([4, 6, 8])), float(random.choice([0, 0, 0.3, VERY_SKEWED]))
    tables = tuple(
        Table(
            f"t{at}",
            int(10 ** random.uniform(3.5, 4.6)),
            int(random.choice([16, 32, 64])),
            float(random.choice([2, 5, 10])),
            str(random.choice(["fp32", "fp16"])),
            features=int(random.choice([1, 1, 3])),
        )
        for at in range(5)
    )[: int(random.integers(3, 6))]
    training, fp16 = bool(random.integers(2)), bool(random.integers(2))
    optimizer = str(random.choice(list(STATE))) if training else "none"
    evaluator = Evaluator.on(
        "h100-sxm-ib",
        PlanTables.of(TableSet("random", tables), zipf(skew)),
        BATCH,
        gpus,
        gpus_per_node=int(random.choice([2, gpus])),
        training=training,
        optimizer=optimizer,
        payload="fp16" if fp16 else None,
    )
    counted = [
        CountedTable(t.rows, t.dim, 2 if t.dtype == "fp16" else 4, int(t.pooling), skew, t.features)
        for t in tables
    ]
    state = STATE[optimizer]
    return Case(evaluator), Referee(counted, BATCH, evaluator.domain, 2 if fp16 else 4, *state, training)


def even_entry(case: Case, table: int, random: np.random.Generator) -> Entry:
    """Any placement whose column parts are equally wide; of very skewed ids in one row part.

    The part with the hottest row has more than the mean one, which is what a plan counts.
    """
    skewed = case.tables.ids[table].skew >= VERY_SKEWED
    while True:
        found = draw_entry(case, table, random)
        if case.tables.dim[table] % found["col_parts"] == 0 and not (skewed and found["row_parts"] > 1):
            return found


@pytest.mark.parametrize("seed", range(1, 25))
def test_bytes_memory_and_busiest_ranks_are_what_a_referee_counts(seed: int) -> None:
    random = np.random.default_rng(seed)
    case, referee = random_case(random)
    document = case.document([even_entry(case, table, random) for table in range(len(case.tables))])
    found = referee.count(document, random, IDS)
    plan = plan_from(document, case.tables)
    rows = {row.name: row for row in case.evaluator.cost(plan).cost.rows}
    steps = {*found.sent, *found.received, *found.moved}
    for step in steps:
        each = found.busiest(step)
        if each.max() == 0:
            continue
        row = rows[step]
        np.testing.assert_allclose(row.payload_bytes, each.max(), rtol=COUNTED, err_msg=step)
        np.testing.assert_allclose(row.mean_bytes, each.mean(), rtol=COUNTED, err_msg=step)
        assert each[row.rank] >= each.max() * (1 - 2 * COUNTED), step
    exchanged = {name for name, row in rows.items() if row.collective and "splits" not in name}
    assert exchanged <= {step for step in steps if found.busiest(step).max() > 0}
    memory = case.evaluator.cost(plan).memory
    np.testing.assert_allclose(memory.rows_bytes, found.rows, rtol=1e-12)
    np.testing.assert_allclose(memory.optimizer_bytes, found.optimizer, rtol=1e-12)
    np.testing.assert_allclose(memory.buffer_bytes, found.buffers, rtol=COUNTED)
