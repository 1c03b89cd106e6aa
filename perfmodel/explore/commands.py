"""Commands of this program that the page runs: for downloads, the static page, a plan in the background."""

from __future__ import annotations

import atexit
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfmodel.effort import EFFORTS
from perfmodel.explore.asked import Said
from perfmodel.question.pages import ReportOptions
from perfmodel.question.passes import ProjectOptions
from perfmodel.question.plans import PlanOptions

STAGES = tuple(EFFORTS)[:2]
"""Efforts of the two searches for a plan: quick, then normal."""
_CALL = (sys.executable, "-c", "from perfmodel.cli import main; main()")
_STDIN = "-"
_MOST_PLANS = 4
_PATIENCE_S = 5.0


def line(asked: Said, command: str = "project", model: str = "") -> list[str]:
    """Words of the command line with the page's answer. model  name of a dropped file in it; "": its own"""
    options = {"project": ProjectOptions, "report": ReportOptions, "plan": PlanOptions}[command]
    return ["perfmodel", command, *asked.words(options, model)]


def _words(asked: Said, command: str) -> list[str]:
    return [*_CALL, *line(asked, command, _STDIN)[1:]]


def _fed(asked: Said) -> bytes:
    return asked.file.raw if asked.file else b""


def printed(asked: Said, kind: str) -> tuple[str, str]:
    """(output of ``perfmodel project`` with option --json or --csv, "") or ("", its error)."""
    done = subprocess.run(
        [*_words(asked, "project"), f"--{kind}"], input=_fed(asked), capture_output=True, check=False
    )
    return (done.stdout.decode(), "") if done.returncode == 0 else ("", done.stderr.decode())


def page(asked: Said) -> tuple[str, str]:
    """(the page of ``perfmodel report``, "") or ("", the error of the command)."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*_words(asked, "report"), "--out", "report.html"]
        done = subprocess.run(words, input=_fed(asked), capture_output=True, cwd=folder, check=False)
        if done.returncode:
            return "", done.stderr.decode()
        return Path(folder, "report.html").read_text(encoding="utf-8"), ""


class Background:
    """A search for a plan in processes of its own: first a quick, then a normal search.

    text  output of the last finished search;  trouble  the error of a search;  stage  the present search
    """

    def __init__(self, asked: Said, gpus: int) -> None:
        words = _words(asked, "plan")
        if "--gpus" not in words:
            words += ["--gpus", str(gpus)]
        self._words, self._fed = words, _fed(asked)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._stopped, self._began_s = threading.Lock(), False, time.monotonic()
        self.text, self.trouble, self.stage = "", "", STAGES[0]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def runs(self) -> bool:
        """Whether the search is still running."""
        return self._thread.is_alive()

    def _run(self) -> None:
        for stage in STAGES:
            with self._lock:
                if self._stopped:
                    return
                self.stage, pipe = stage, subprocess.PIPE
                words = [*self._words, "--effort", stage]
                self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)
            printed, said = self._process.communicate(self._fed)
            self.text = printed.decode() or self.text
            if self._process.returncode and not self._stopped:
                self.trouble = said.decode()
                return

    def stop(self) -> None:
        """End the search, and wait for its process. The best plan so far stays, if it was printed."""
        with self._lock:
            self._stopped, process = True, self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        self._thread.join(_PATIENCE_S)
        if self.runs:
            process.kill()
        self._thread.join()

    def words(self) -> str:
        """How far the search has come, in words for the user."""
        if self.trouble:
            return self.trouble
        if self._stopped:
            return "Stopped." + (" The best plan so far:" if self.text else " There was no plan yet.")
        if not self.runs:
            return "Done: a search of normal effort."
        beside = " Below is what the quick search found." if self.text else ""
        return f"A {self.stage} search is running, {time.monotonic() - self._began_s:.0f} s so far.{beside}"


class Backgrounds:
    """The searches of all visitors, by random names, so that no visitor guesses another's."""

    def __init__(self) -> None:
        self._known: dict[str, Background] = {}
        self._lock = threading.Lock()
        atexit.register(self.stop)

    def start(self, asked: Said, gpus: int) -> str | None:
        """Start a search on ``gpus`` GPUs; returns its name. Limits: ``_MOST_PLANS`` run already -> None"""
        with self._lock:
            done = [name for name, plan in self._known.items() if not plan.runs]
            for name in done[:-_MOST_PLANS]:
                del self._known[name]
            if len(self._known) - len(done) >= _MOST_PLANS:
                return None
            name = secrets.token_urlsafe()
            self._known[name] = Background(asked, gpus)
            return name

    def get(self, name: Any) -> Background | None:
        """The search of this name. Limits: no such name -> None"""
        return self._known.get(str(name))

    def stop(self) -> None:
        """End all searches."""
        for plan in list(self._known.values()):
            plan.stop()
