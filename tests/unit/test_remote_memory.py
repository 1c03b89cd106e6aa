"""One memory over the network: numbers by hand, its limits, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.answer import Answer, project_one
from perfmodel.answer.explained import build_explained_pass
from perfmodel.errors import BadInputError
from perfmodel.model.one_memory import remote_time, shared_rate
from perfmodel.model.recording import to_float

TB = 1e12
FAR = "10TB@3TB/s,shared:16,latency:3us"


def one(*memory: float, **more: Any) -> Answer:
    return project_one(**{"table_bytes": 10 * TB, "local_memory": memory, **more})


def test_the_equations_limits() -> None:
    assert shared_rate(3e12, 1, float("inf")) == 3e12
    assert shared_rate(3e12, 100, 50e9) == 30e9
    assert shared_rate(3e12, 16, 50e9) == 50e9
    assert remote_time(9e-6, 4e-6, 4e6, float("inf"), 3e-6) == pytest.approx(12e-6)
    assert remote_time(9e-6, 4e-6, 4e6, 50e9, 0.0) == pytest.approx(84e-6)


def test_shared_by_one_with_a_fast_card_is_a_local_memory_and_the_latency() -> None:
    near = one(10 * TB, 3e12)
    far = one(10 * TB, 3e12, 2e-6, 1, overrides={"nic_bytes_per_s": 1e14})
    assert far.time_s == pytest.approx(near.time_s + 2e-6)
    assert far.gpus == 1


def test_a_card_carries_rows_ids_and_bags_once() -> None:
    """1024 bags of 32 rows of 128 B, an id of 8 B for each, a bag of 128 B and an offset of 8 B: 4.6 MB."""
    moved = 1024 * 32 * (128 + 8) + 1024 * (128 + 8)
    answer = one(10 * TB, 3e12, 3e-6, 16)
    assert answer.time_s == pytest.approx(3e-6 + 4e-6 + moved / 50e9, rel=0.01)
    assert [step.name for step in answer.steps] == ["gather_pool"]
    assert "16 GPUs read the memory at once" in answer.notes[0] and "network card" in answer.notes[0]


def test_the_gather_is_explained_with_the_numbers_that_make_it(cli: Any) -> None:
    """Beside the GPU and over the network, at the card and at the memory: the terms give the time again."""
    for memory in ((10 * TB, 3e12), (10 * TB, 3e12, 3e-6, 16), (10 * TB, 300e9, 3e-6, 16)):
        answer = one(*memory)
        *far, near = build_explained_pass(answer).explain("gather").time
        of = {letter: to_float(number) for letter, number in near.letters.items()}
        time = of["t0"] + max(of["dram_bytes"] / of["dram_rate"], of["l2_bytes"] / of["l2_rate"])
        if len(memory) > 2:
            of = {letter: to_float(number) for letter, number in far[0].letters.items()}
            assert time == pytest.approx(of["t"])
            time = of["latency"] + max(time, of["t0"] + of["x"] / of["C"])
        assert time == pytest.approx(answer.time_s)
    done = cli("project", "--table-size", "10TB", "--remote-memory", FAR, "--explain", "gather")
    assert "t 99.5 µs = latency + max(t, t0 + x / C) " in " ".join(done.out.split())


def test_more_sharers_wait_longer_and_no_card_makes_up_for_it() -> None:
    times = [one(10 * TB, 300e9, 3e-6, n).time_s for n in (1, 6, 12, 24)]
    assert times == sorted(times) and times[-1] > 1.9 * times[-2]
    share = one(10 * TB, 300e9 / 24, 3e-6, 1).time_s
    assert times[-1] == pytest.approx(share)


def test_the_command_asks_the_same_and_says_what_it_was(cli: Any) -> None:
    words = ("project", "--table-size", "10TB", "--remote-memory", FAR)
    done = cli(*words)
    assert "fit in one memory that 16 GPUs share" in done.out and "3.00 µs away" in done.out
    answer = one(10 * TB, 3e12, 3e-6, 16)
    assert answer.question is not None
    assert answer.question.list_arguments() == ["--table-size", "10TB", "--remote-memory", FAR]
    document = answer.question.to_dict(answer.forward, answer.work)
    assert document["local_memory"] is None
    found = {"bytes": 1e13, "bytes_per_s": 3e12, "latency_s": 3e-6, "gpus": 16}
    assert document["remote_memory"] == pytest.approx(found)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--remote-memory", "10TB@3TB/s,shared:16"), "does not say its latency"),
        (("--remote-memory", "10TB,latency:3us"), "does not begin with SIZE@RATE"),
        (("--remote-memory", "10TB@3TB/s,latency:3us,latency:4us"), "is not shared:GPUS or latency:TIME"),
        (("--remote-memory", "10TB@3TB/s,latency:3us,rate:4"), "is not shared:GPUS or latency:TIME"),
        (("--remote-memory", "10TB@3TB/s,latency:3us,shared:0"), "shared"),
        (("--remote-memory", "10TB@3TB/s,latency:3"), "--remote-memory"),
        (("--remote-memory", "1TB@3TB/s,latency:3us"), "do not fit a memory of 1 TB"),
        (("--remote-memory", FAR, "--local-memory", "10TB@3TB/s"), "would both hold all rows"),
        (("--remote-memory", FAR, "--gpus", "8"), "contradict each other"),
        (
            ("--remote-memory", FAR, "--sharding", "grid"),
            "--sharding grid and --remote-memory cannot be combined",
        ),
        (
            ("--remote-memory", FAR, "--report", "page.html"),
            "--report and --remote-memory cannot be combined",
        ),
    ],
)
def test_what_cannot_be_is_refused(cli: Any, words: tuple[str, ...], part: str) -> None:
    done = cli("project", "--table-size", "10TB", *words)
    assert done.code == 2 and part in " ".join(done.err.split())


@pytest.mark.parametrize("memory", [(1e13,), (1e13, 3e12, 3e-6, 0), (1e13, 3e12, -1.0, 1), (0.0, 3e12)])
def test_values_in_python_are_checked(memory: tuple[float, ...]) -> None:
    with pytest.raises(BadInputError, match="cannot be used"):
        one(*memory)
