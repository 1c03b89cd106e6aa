"""Answers of the planner in Python: a plan, or plans on several numbers of GPUs, as pandas frames."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.effort import Deadline
from perfmodel.engine.placement import Plan
from perfmodel.errors import naming_arguments
from perfmodel.plan.arguments import seconds
from perfmodel.plan.files import write_plan
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.scaling import Scaling
from perfmodel.plan.what_ifs import what_ifs
from perfmodel.units import counted, format_time

if TYPE_CHECKING:
    import pandas as pd

STOPPED = "stopped by Ctrl-C"
IN_PYTHON = naming_arguments(
    {
        "--max-hbm": "max_hbm_bytes",
        "--time-limit": "time_limit_s",
        "--effort ": "effort=",
        "--set": "overrides",
        "--model": "tables",
    }
)
"""Rewrites error messages to name arguments instead of the command's options."""


@dataclass(frozen=True, eq=False)
class TablePlan:
    """A plan and its cost, as frames.

    question  the question;  answer  the plan, its cost and its bound (``answer.found``)
    """

    question: PlanQuestion
    answer: Planned

    def __repr__(self) -> str:
        """One line: the question and the time."""
        of = f"{counted(len(self.plan.tables), 'table')} on {counted(self.plan.gpus, 'GPU')}"
        return f"<TablePlan of {of}: {format_time(self.time_s)}{_said(stopped=self.stopped)}>"

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C ended the search early: this is the best plan up to then."""
        return self.answer.found.stopped == "interrupt"

    @property
    def plan(self) -> Plan:
        """Which GPUs hold which part of which table."""
        return self.answer.plan

    @property
    def time_s(self) -> float:
        """Time of a pass [s]."""
        return self.answer.found.cost.time_s

    @property
    def bound_s(self) -> float:
        """Lower bound: no plan of the shardings that were looked at takes less [s]."""
        return self.answer.found.bound_s

    @property
    def tables(self) -> pd.DataFrame:
        """One row a table, as of ``perfmodel plan --csv``.

        table, rows [-], dim [-], sharding, exchange, row_parts [-], col_parts [-], hot_rows [-] (on every
        GPU), shard_bytes [bytes of HBM on each GPU with a part], ranks (list; empty: all)
        """
        import pandas as pd

        return pd.DataFrame(self.answer.table_records())

    @property
    def steps(self) -> pd.DataFrame:
        """One row a step of the pass: the ``steps`` of ``--json``.

        name, collective, time_s, low_s, high_s, floor_s [s], evidence, limit, library, bytes and mean_bytes
        [bytes, of the busiest GPU and of the mean GPU], rank (the busiest), imbalance [-]
        """
        import pandas as pd

        return pd.DataFrame(self.to_dict()["steps"])

    @property
    def gpus(self) -> pd.DataFrame:
        """One row a GPU.

        rank, rows_bytes, optimizer_bytes, buffer_bytes (of exchanges), memory_bytes (all of them) [bytes]
        """
        import pandas as pd

        memory = self.answer.found.memory
        return pd.DataFrame(
            {
                "rank": range(self.plan.gpus),
                "rows_bytes": memory.rows_bytes,
                "optimizer_bytes": memory.optimizer_bytes,
                "buffer_bytes": memory.buffer_bytes,
                "memory_bytes": memory.total_bytes,
            }
        )

    @IN_PYTHON
    def what_ifs(self, time_limit_s: float | None = None) -> pd.DataFrame:
        """A row for each change of the question, with the best plan for it: the ``changes`` of ``--json``.

        name, words, option (that makes the change), time_s [s], samples_per_s [1/s], why (there is no plan,
        or it is slower), cut_short (the time limit left no time for a search), limits

        time_limit_s  time by the clock that cuts all of them short together [s]; None: none
        """
        import pandas as pd

        found = what_ifs(self.question, self.answer, Deadline(seconds(time_limit_s)))
        return pd.DataFrame([each.to_dict() for each in found])

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of ``perfmodel plan --json`` for this plan, in SI units."""
        return self.answer.to_dict()

    def write(self, path: str | Path) -> None:
        """Write the plan to a file that ``perfmodel plan --plan`` reads; an existing file is overwritten."""
        write_plan(self.plan, Path(path), self.answer.made_for)


@dataclass(frozen=True, eq=False)
class TableScaling:
    """Plans of the same tables on several numbers of GPUs.

    found  the plans (``found.points``)
    knee   number of GPUs beyond which more GPUs add little; None if there is none (``scaling.sure_knee``)
    """

    found: Scaling

    def __repr__(self) -> str:
        """One line: the time of each plan."""
        times = (
            f"{at.gpus} GPUs {format_time(at.answer.found.cost.time_s) if at.answer else 'no plan'}"
            for at in self.found.points
        )
        return f"<TableScaling: {', '.join(times)}{_said(stopped=self.stopped)}>"

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C ended the search early: later numbers of GPUs have no plan."""
        return self.found.stopped

    @property
    def knee(self) -> int | None:
        """The number of GPUs beyond which each further GPU adds less than half of the average before."""
        return self.found.knee

    @property
    def table(self) -> pd.DataFrame:
        """One row a number of GPUs: ``scaling`` of ``perfmodel plan --gpus 8,16 --json``.

        gpus [-], time_s, low_s, high_s [s], samples_per_s, gpu_samples_per_s [1/s], added [-], memory_bytes,
        memory_limit_bytes [bytes of a GPU], longest_step, longest_share [-], bound_s [s], gap [-],
        why_not (there is no plan)
        """
        import pandas as pd

        return pd.DataFrame([point.to_dict() for point in self.found.points])


def _said(*, stopped: bool) -> str:
    return f", {STOPPED}" if stopped else ""
