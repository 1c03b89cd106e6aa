"""The host that issues a pass: equations, counts, and what is slower in which part."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.errors import BadInputError
from perfmodel.model.issuing import host_time, issued_ends
from perfmodel.passes.schemes import ROW_WISE as ROW_WISE_NAME
from perfmodel.passes.steps import FORWARD, STEPS
from perfmodel.plan.as_projection import compared
from perfmodel.plan.leading import RUN
from perfmodel.projections import project_one
from perfmodel.projections.hosted import MODES, HostCosts, check_clock, host_costs, hosted, with_host
from perfmodel.projections.ids_ahead import ids_ahead
from perfmodel.schema.evidence import Evidence


def test_time_of_the_host() -> None:
    each = (0.5, 1.0, 2.0, 3.0)
    assert host_time(0, 0, 0, 0, each) == 0
    assert host_time(0, 5, 0, 0, each) == 5
    assert host_time(4, [1, 2], 1, 1, each).tolist() == [8, 9]


def test_ends_of_a_stream() -> None:
    h, d = np.array([1.0, 2.0, 3.0]), np.array([4.0, 1.0, 2.0])
    none = np.zeros(3)
    assert issued_ends(none, d, [False] * 3)[0].tolist() == [4, 5, 7]
    ends, issued = issued_ends(h, none, [False] * 3)
    assert ends.tolist() == issued.tolist() == [1, 3, 6]
    assert issued_ends(h, d, [True] * 3)[0][-1] == 13
    ends, issued = issued_ends(h, d, [False] * 3)
    assert ends.tolist() == [5, 6, 8] and issued.tolist() == [1, 3, 6]
    ends, issued = issued_ends(h, d, [True, False, False])
    assert ends.tolist() == [5, 8, 12] and issued.tolist() == [1, 7, 10]


def event_by_event(h: list[float], d: list[float], waits: list[bool]) -> float:
    """The opponent: a queue of issued work, taken one at a time."""
    clock, queue = 0.0, []
    busy_until = 0.0
    for host, device, wait in zip(h, d, waits, strict=True):
        clock += host
        queue.append((clock, device))
        if wait:
            while queue:
                came, work = queue.pop(0)
                busy_until = max(busy_until, came) + work
            clock = max(clock, busy_until)
    for came, work in queue:
        busy_until = max(busy_until, came) + work
    return max(busy_until, clock)


@pytest.mark.parametrize("seed", range(5))
def test_ends_are_those_of_a_queue(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(50):
        count = int(random.integers(1, 9))
        h, d = random.exponential(1, (2, count))
        waits = (random.random(count) < 0.3).tolist()
        ends, issued = issued_ends(h, d, waits)
        total = max(float(ends[-1]), float(issued[-1]))
        assert total == pytest.approx(event_by_event(h.tolist(), d.tolist(), waits))
        assert max(h.sum(), d.sum()) <= total + 1e-12
        assert total <= h.sum() + d.sum() + 1e-12


def test_an_eager_host_issues_what_was_counted() -> None:
    """759 Python calls, 59 operators, 9 launches and 4 collectives: benchmarks/host_time.py --counts."""
    costs = host_costs("eager")
    steps = [step for step in FORWARD if step.name in ROW_WISE]
    assert [step.name for step in steps] == ROW_WISE
    assert costs.of(steps).sum() == pytest.approx(host_time(759, 59, 9, 4, costs.each))
    waits = [step.alike == "all_to_all_splits" for step in steps]
    more = replace(costs, stretch_s=costs.stretch_s + 1.0).of(steps) - costs.of(steps)
    assert more == pytest.approx([1, *(float(wait) for wait in waits[:-1])])  # at the begin, after each wait
    assert costs.evidence is Evidence.TRANSFERRED
    low, high = (host_costs("eager", end=end) for end in (-1, 1))
    for name in ("call_s", "operator_s", "launch_s", "collective_s"):
        assert getattr(low, name) < getattr(costs, name) < getattr(high, name)


ROW_WISE = [
    "bucketize",
    "all_to_all_splits",
    "all_to_all_lengths",
    "all_to_all_ids",
    "gather_pool",
    "reduce_scatter_bags",
]


@pytest.mark.parametrize("mode", MODES)
def test_a_projection_with_its_host(mode: str) -> None:
    answer = project_one(table_bytes=10e12)
    found = hosted(answer, mode)
    assert found.device_s == pytest.approx(answer.time_s)
    assert max(found.device_s, found.host_s) <= found.time_s <= (found.device_s + found.host_s) * (1 + 1e-9)
    assert sum(step.idle_s for step in found.steps) == pytest.approx(found.idle_s)
    assert found.low_s < found.time_s < found.high_s
    assert found.baseline_time_s > answer.baseline_time_s
    low, high = found.slowdown_low, found.slowdown_high
    assert low < found.slowdown < high
    assert low <= found.low_s / found.baseline_time_s < found.high_s / found.baseline_time_s <= high * 1.01
    assert found.to_dict()["slowdown_low"] == low
    by_mode = [hosted(answer, each).time_s for each in MODES]
    assert by_mode == sorted(by_mode, reverse=True)


def test_a_free_host_is_the_device_and_a_slow_one_is_the_host() -> None:
    steps = [STEPS[name] for name in ROW_WISE]
    device = np.full(6, 1e-5)
    free = HostCosts("eager", 0, 0, 0, 0, 0, {})
    shown, total = with_host(free, steps, device)
    assert shown == pytest.approx(device) and total == pytest.approx(6e-5)
    slow = HostCosts("eager", 1.0, 1.0, 1.0, 1.0, 0, {})
    assert with_host(slow, steps, device)[1] == pytest.approx(759 + 59 + 9 + 4, abs=1e-3)
    many = np.repeat(device[:, np.newaxis], 3, axis=1) * np.array([1.0, 2.0, 3.0])
    assert with_host(free, steps, many)[1].shape == (3,)


def test_eager_times_have_the_host_already() -> None:
    setting = project_one(table_bytes=10e12, machine="h200-sxm-ib", clock="eager").setting
    with pytest.raises(BadInputError, match="eager clock"):
        check_clock(setting, "eager")
    with pytest.raises(BadInputError, match="host"):
        host_costs("lazy")


def test_ids_sent_ahead_hide_what_does_not_share_the_links() -> None:
    answer = project_one(table_bytes=10e12, batch=4096, table_count=8)
    found = ids_ahead(answer.steps)
    assert found is not None
    rows = {row.name: row.time_s for row in answer.steps}
    links = sum(row.time_s for row in answer.steps if row.collective)
    kernels = rows["bucketize"] + rows["gather_pool"]
    assert found.ids_s == pytest.approx(sum(rows[name] for name in ROW_WISE[:4]))
    assert found.step_s >= links * (1 - 1e-9)
    assert found.hidden_s == pytest.approx(answer.time_s - found.step_s)
    assert 0 < found.hidden_s <= kernels * (1 + 1e-9)
    assert ids_ahead(project_one(table_bytes=10e9).steps) is None  # one GPU


def test_the_screen_and_the_document(cli: Any) -> None:
    text = cli("project", "--table-size", "10TB", "--host", "eager")
    assert text.code == 0, text.err
    first = text.out.splitlines()[0]
    assert "with an eager host" in first and "The device alone:" in text.out
    assert re.search(r"band [\d.]+× – [\d.]+×$", first)
    assert "What would change the answer of the device alone" in text.out
    tier = cli("project", "--table-size", "10TB", "--tier", "uvm", "--host", "graph").out
    assert re.match(
        r"[\d.]+× slower with all rows in host memory over 48 GPUs than .*, with CUDA graphs\.", tier
    )
    assert max(map(len, text.out.splitlines())) <= 100
    row_wise = ("project", "--table-size", "10TB", "--sharding", "row-wise", "--json")
    found = json.loads(cli(*row_wise, "--host", "compiled").out)
    assert found["host"]["mode"] == "compiled" and found["host"]["time_s"] > found["time_s"]
    assert found["ids_ahead"]["hidden_s"] > 0
    assert json.loads(cli(*row_wise).out)["host"] is None


def test_a_plan_with_its_host(cli: Any, once: None, tmp_path: Path) -> None:
    """A plan of row-wise tables alone is a projection: the same steps, the same host."""
    tables = tmp_path / "tables.csv"
    tables.write_text("name,rows,dim,pooling\n" + "".join(f"t{n},32000000,128,20\n" for n in range(4)))
    of_tables = ("--model", str(tables), "--gpus", "16", "--host", "eager")
    asked = ("plan", *of_tables, "--effort", "quick", "--only", "row-wise,reduced")
    found = json.loads(cli(*asked, "--json").out)
    whole = json.loads(cli("project", *of_tables, "--sharding", "row-wise", "--json").out)
    for name in ("host_s", "idle_s", "device_s", "time_s", "low_s", "high_s"):
        assert found["host"][name] == pytest.approx(whole["host"][name], rel=1e-9), name
    assert found["ids_ahead"] == pytest.approx(whole["ids_ahead"], rel=1e-9)
    text = cli(*asked).out
    assert re.search(r"^With an eager host .* per batch\. +band ", text, re.M) and "The device alone:" in text
    assert re.search(r"^Next ids  ", text, re.M)
    refused = cli(*asked, "--objective", "throughput")
    assert refused.code == 2 and "of a forward pass alone" in refused.err
    assert cli("plan", "--model", str(tables), "--gpus", "16,32", "--host", "eager").code == 2


def test_what_the_host_does_before_the_first_exchange_is_counted_in_every_pass() -> None:
    """Without a bucketize, as in a pass over different rows, before the step that begins it."""
    costs, base = host_costs("eager"), project_one(table_bytes=10e12, gpus=152)
    (unique,) = compared(base, ["row-wise-ub"])
    assert unique.answer is not None
    first, *rest = [STEPS[row.name] for row in unique.answer.steps]
    assert first.alike != "bucketize" and any(step.alike == "all_to_all_splits" for step in rest)
    of_row_wise = costs.of([STEPS[name] for name in ROW_WISE])
    assert costs.of([first, *rest])[0] == pytest.approx(of_row_wise[0])
    assert costs.of([STEPS["gather_pool"]])[0] < costs.of([first, *rest])[:4].sum()


MANY = ("project", "--table-size", "10TB", "--tables", "300", "--dim", "128", "--pooling", "20")


@pytest.mark.parametrize("asked", [("project", "--table-size", "10TB"), MANY])
def test_with_a_host_the_best_sharding_that_fits_leads(cli: Any, asked: tuple[str, ...]) -> None:
    """The opponent: each way by its name, with the same host."""
    found = json.loads(cli(*asked, "--host", "eager", "--json").out)
    times = {}
    for way in RUN:
        one = cli(*asked, "--gpus", str(found["gpus"]), "--sharding", way, "--host", "eager", "--json")
        known = json.loads(one.out) if one.code == 0 else {"gpu_count": {"fits": False}}
        if known["gpu_count"]["fits"]:
            times[way] = known["host"]["time_s"]
            assert known["host"]["device_s"] == pytest.approx(known["time_s"])
    assert len(times) > 2 and found["sharding"] == min(times, key=lambda way: times[way])
    assert found["host"]["time_s"] == pytest.approx(times[found["sharding"]])
    assert found["row_wise"]["fits"] == (ROW_WISE_NAME in times)
    text = cli(*asked, "--host", "eager").out
    first, rest = text.splitlines()[0], " ".join(text.split())
    assert f"sharded {found['sharding']} over" in first and "with an eager host" in first
    beside = "row-wise (TorchRec's) takes" if found["row_wise"]["fits"] else "row-wise does not fit: it needs"
    assert f"by {found['sharding']} (" in rest and beside in rest.partition("The device alone:")[0]


def test_nothing_that_does_not_fit_leads_with_a_host(cli: Any) -> None:
    large = ("project", "--table-size", "2TB", "--gpus", "30", "--tables", "300", "--batch", "64000")
    refused = cli(*large, "--host", "graph")
    assert refused.code == 2
    assert "no uniform sharding that TorchRec runs fits" in " ".join(refused.err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "lazy"), "eager"),
        (("--host", "eager", "--csv"), "--csv"),
        (("--host", "eager", "--local-memory", "10TB@3TB/s"), "--local-memory"),
        (("--host", "eager", "--machine", "h200-sxm-ib", "--clock", "eager"), "eager clock"),
    ],
)
def test_what_has_no_host(cli: Any, words: tuple[str, ...], said: str) -> None:
    outcome = cli("project", "--table-size", "10TB", *words)
    assert outcome.code == 2 and said in outcome.err, outcome.err


def test_all_shardings_are_compared_with_the_host_that_was_asked_for(cli: Any) -> None:
    """Each as it is asked for alone; the fastest with its host is the winner."""
    words = ("project", "--table-size", "2TB", "--host", "eager")
    found = json.loads(cli(*words, "--sharding", "all", "--json").out)
    times = {each["sharding"]: each["host"]["time_s"] for each in found["shardings"] if "host" in each}
    assert found["winner"] == min(times, key=lambda way: times[way]) and found["undecided"] is None
    alone = json.loads(cli(*words, "--sharding", "row-wise-ub", "--json").out)
    assert times["row-wise-ub"] == alone["host"]["time_s"]
    text = " ".join(cli(*words, "--sharding", "all").out.split())
    assert f"{found['winner']} wins on 32 GPUs with an eager host" in text and "without --host" in text


def _words(text: str) -> str:
    return " ".join(text.split())


def test_the_answer_of_the_device_alone_has_that_of_an_eager_host_one_line_below(cli: Any) -> None:
    words = ("project", "--table-size", "10TB", "--sharding", "row-wise")
    lines = cli(*words).out.splitlines()
    hosted_line = cli(*words, "--host", "eager").out.splitlines()[0]
    assert "this is the device alone; with an eager host" in lines[3]
    assert hosted_line.split()[0] in lines[3] and "1.61 ms per batch (--host eager)" in lines[3]
    assert "device alone" not in cli(*words, "--clock", "eager", "--machine", "h200-sxm-ib").out
    assert "eager host" not in cli("project", "--table-size", "10TB", "--local-memory", "10TB@3TB/s").out
