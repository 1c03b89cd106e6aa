"""TorchRec's process (planner_torchrec.py) as benchmarks/planner.py asks it."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Plan
from perfmodel.plan import torchrec

WORKER = Path(__file__).with_name("planner_torchrec.py")
_START_S = 60  # to import TorchRec and to enumerate


class Worker:
    """TorchRec's estimators and planner for the tables of ``base``, a plan that it can run.

    ``with`` ends the process. One that answers too late is ended too, and started anew when it is needed.
    """

    def __init__(self, evaluator: Evaluator, base: Plan, limit_bytes: float, training: bool) -> None:
        self.evaluator, self.limit = evaluator, limit_bytes
        self.folder = tempfile.TemporaryDirectory()
        self.command = [sys.executable, str(WORKER), self._file(base, "base"), *["--training"][:training]]
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self.folder.cleanup()

    def score(self, plan: Plan) -> dict[str, float]:
        """TorchRec's score [ms] and memory [bytes] of a plan. Limits: it cannot run it -> BadInputError"""
        return self._answer({"ask": "score", "plan": self._file(plan, "scored")})

    def planned(self, seconds: float) -> dict[str, Any] | None:
        """What TorchRec's planner finds that may propose for so long; None where it does not end."""
        return self._ask({"ask": "plan", "seconds": seconds}, seconds + _START_S)

    def _file(self, plan: Plan, name: str) -> str:
        path = Path(self.folder.name) / f"{name}.json"
        torchrec.write_for_torchrec(self.evaluator, plan, path, self.limit)
        return str(path)

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        answer = self._ask(asked, None)
        assert answer is not None
        return answer

    def _ask(self, asked: dict[str, Any], timeout: float | None) -> dict[str, Any] | None:
        """The answer, or None after ``timeout`` seconds. Limits: it fails -> RuntimeError"""
        if self.process is None:
            self.errors = (Path(self.folder.name) / "errors").open("w+")
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
            )
        said, heard = cast(Any, self.process.stdin), cast(Any, self.process.stdout)
        said.write(json.dumps(asked) + "\n")
        said.flush()
        if not select.select([heard], [], [], timeout)[0]:
            self._end()
            return None
        line = heard.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(f"TorchRec's process failed:\n{self.errors.read()[-2000:]}")
        return dict(json.loads(line))

    def _end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.errors.close()
            self.process = None
