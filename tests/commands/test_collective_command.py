"""``perfmodel collective``: its rows, and what no library can send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_calls import WIDTH


def test_collective_has_the_public_names(cli: Any) -> None:
    words = ("collective", "--op", "all_to_all", "--size", "1GiB", "--gpus", "128")
    answer = json.loads(cli(*words, "--json").out)
    names = ("collective", "payload_bytes", "gpus", "gpus_per_node", "time_s", "low_s", "high_s",
             "algbw_bytes_per_s", "busbw_bytes_per_s", "evidence", "clock")  # fmt: skip
    assert [name for name in names if name not in answer] == []
    assert (answer["payload_bytes"], answer["gpus_per_node"]) == (2**30, 8)
    assert answer["low_s"] < answer["time_s"] < answer["high_s"]
    assert answer["algbw_bytes_per_s"] == pytest.approx(2**30 / answer["time_s"])
    assert answer["busbw_bytes_per_s"] == pytest.approx(answer["algbw_bytes_per_s"] * 127 / 128)
    assert answer["results"] == [{name: answer[name] for name in answer["results"][0]}]


def test_collective_takes_lists_and_ranges(cli: Any) -> None:
    words = ("collective", "--op", "all", "--size", "1MiB..4MiB", "--gpus", "4,8")
    answer = json.loads(cli(*words, "--json").out)
    assert len(answer["results"]) == 5 * 3 * 2
    assert "time_s" not in answer
    assert max(len(line) for line in cli(*words).out.splitlines()) <= WIDTH


def test_one_gpu_sends_nothing(cli: Any) -> None:
    words = ("collective", "--op", "all_gather", "--size", "1MiB", "--gpus", "1")
    outcome = cli(*words)
    assert outcome.code == 0 and "0 s" in outcome.out and "∞" not in outcome.out + outcome.err
    assert "one GPU sends nothing" in outcome.err
    assert json.loads(cli(*words, "--json").out)["algbw_bytes_per_s"] is None


@pytest.mark.parametrize(
    ("size", "backend", "good"), [("127", "nccl", 0), ("128", "nccl", 1), ("64", "nvshmem", 1)]
)
def test_calls_that_nccl_would_round_to_nothing(cli: Any, size: str, backend: str, good: bool) -> None:
    words = ("collective", "--size", size, "--gpus", "8", "--machine", "h200-sxm-ib", "--op")
    for op in ("all_to_all", "all_gather", "reduce_scatter"):
        outcome = cli(*words, op, "--backend", backend)
        assert outcome.code == (0 if good else 2), outcome.err
        assert good or "below NCCL's 16 B alignment: it would time an empty" in outcome.err
        assert good or "the smallest size here is 128 B." in outcome.err
    assert cli(*words, "all_reduce").code == 0


def test_all_collectives_but_those_that_a_library_lacks(cli: Any) -> None:
    words = ("--size", "1MiB", "--gpus", "8", "--backend", "nvshmem", "--machine", "h200-sxm-ib")
    every = cli("collective", "--op", "all", *words)
    assert every.code == 0 and "warning: nvshmem has no all_reduce, broadcast" in every.err
    assert "all_gather" in every.out
    assert cli("collective", "--op", "all_reduce", *words).code == 3
