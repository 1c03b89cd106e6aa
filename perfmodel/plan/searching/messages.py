"""What processes that search together tell each other, and the line between two of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.choices.options import Options
from perfmodel.plan.pricing.cost import Evaluator

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class HelperTask(Enum):
    """What a process does beside the search that started it."""

    WHOLE = "raises the bound of the listed schemes with whole tables"
    ROOMS = "raises it by parts, and by the rooms of ranks"
    LISTED = "raises it in all these ways"
    EVERY = "raises the bound over every plan"
    PLANS = "changes plans, with a seed of its own"


@dataclass(frozen=True, eq=False)
class KnownPlan:
    """A plan of options that both sides have: the option of each table [T], its ranks, and its time [s]."""

    option: Ints
    ranks: Sequence[Ints]
    time_s: float


@dataclass(frozen=True, eq=False)
class HelperQuestion:
    """What a process is asked; as in ``Search``, where a plan is known already.

    seconds  that it has from its start, on ``clock``;  every  whether a bound over every plan is wanted
    kinds    of exchange, those first that are likely to be in good plans
    """

    task: HelperTask
    evaluator: Evaluator
    options: Options
    limit_bytes: float
    every: bool
    allowed: Callable[[Ints], Mask] | None
    kinds: Sequence[int]
    seed: int
    seconds: float
    clock: Callable[[], float]
    best: KnownPlan


@dataclass(frozen=True, eq=False)
class News:
    """What one side found since it last told.

    best  a better plan, if there is one;  bound_s, every_s  as in ``TwoBounds.heard``
    done  whether no more will come
    """

    best: KnownPlan | None = None
    bound_s: float = 0.0
    every_s: float = 0.0
    done: bool = False


class Line:
    """One end of two pipes. Threads read and write, so that neither side waits for the other.

    open  whether more may come: the other side runs, and has not said that it is done
    done  whether it said so
    """

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self.reader, self.writer, self.open, self.done = reader, writer, True, False
        self.came: SimpleQueue[News] = SimpleQueue()
        self.told: SimpleQueue[Any] = SimpleQueue()
        self.threads = [Thread(target=work, daemon=True) for work in (self._read, self._write)]
        for thread in self.threads:
            thread.start()

    def _read(self) -> None:
        try:
            while not self.done:
                news = pickle.load(self.reader)
                self.came.put(news)
                self.done = news.done
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            pass  # the other side has ended, perhaps within a message
        self.open = False

    def _write(self) -> None:
        try:
            while (message := self.told.get()) is not None:
                pickle.dump(message, self.writer)
                self.writer.flush()
        except (OSError, ValueError):
            pass  # the other side has ended
        finally:
            self.open = self.open and message is None

    def tell(self, message: HelperQuestion | News | list[str]) -> None:
        """Send a message, soon."""
        self.told.put(message)

    def news(self) -> list[News]:
        """What came since the last time."""
        return [self.came.get() for _ in range(self.came.qsize())]

    def ended(self, seconds: float) -> None:
        """Wait until the other side says no more, or so long."""
        self.threads[0].join(seconds)

    def end(self) -> None:
        """Send what is left, and that no more will come."""
        self.tell(News(done=True))
        self.told.put(None)
        self.threads[1].join()
