"""What a service carries, who is late, and what cannot be carried."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_service_events import BAGS, GATHER, IDS, served

from perfmodel.errors import BadInputError
from perfmodel.model import queueing
from perfmodel.report.load_headline import headline, most_words
from perfmodel.schema.constants import load_service_constants
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.schema.run_files import Run
from perfmodel.schema.runs import Finish, Point, PointKind, RunHeader, Status, Visit
from perfmodel.schema.samples import load_samples
from perfmodel.service.arrivals import ArrivalTrace, Poisson, read_arrivals
from perfmodel.service.events import Rule, simulate
from perfmodel.service.highest import Replica, carried
from perfmodel.service.hourly import hourly_cost
from perfmodel.service.served import planned_pass, projected_pass
from perfmodel.service.service_load import least_latency, service_load
from perfmodel.service.sizing import ServiceQuestion, sized
from perfmodel.service.stragglers import (
    Lateness,
    RankDelay,
    lateness,
    measured_ranks,
    spread_of,
    spread_of_run,
)

ONE = served((IDS, 4e-4, 2e-6), (GATHER, 2e-4, 1e-6), (BAGS, 4e-4, 2e-6), gpus=4)


# --- the highest load -------------------------------------------------------------------------------------


def test_nothing_of_a_finer_search_carries_much_more() -> None:
    """The opponent: every batch size of a fine list, many waits, both ways, each load tried upwards."""
    replica = Replica(ONE, Poisson(1), 3e-3)
    found = max(each.rate_per_s for each in carried(replica, [2**power for power in range(1, 11)]))
    best = 0.0
    for batch in np.unique(np.geomspace(4, 1024, 8).astype(int)):
        for overlap in (False, True):
            for wait in (0.0, 2e-4, 1e-3):
                rule = replica.rule(int(batch), wait, overlap)
                rate = replica.capacity(rule) * 0.995
                while rate > best * 1.02 and replica.p99(rule, rate, (8000, 20)) > 3e-3:
                    rate *= 0.97
                best = max(best, rate if rate > best * 1.02 else best)
    assert found >= 0.93 * best


def test_the_highest_load_is_within_the_limit_and_a_higher_one_is_not() -> None:
    answer = service_load(ServiceQuestion(served=ONE, requests=20_000, limit_s=3e-3))
    replica, best = answer.question.replica(1), answer.best
    assert replica.run(best.rule, best.rate_per_s, (20_000, 20)).quantile(0.99) <= 3e-3 * 1.01
    assert (
        replica.run(
            best.rule, min(1.06 * best.rate_per_s, 0.999 * best.capacity_per_s), (20_000, 20)
        ).quantile(0.99)
        > 3e-3
    )
    assert best.capacity_per_s == pytest.approx(
        float(queueing.batch_capacity(best.rule.requests, ONE.gap(best.batch, best.rule.overlap)))
    )
    frame = answer.to_frame()
    assert frame["p50_s"].is_monotonic_increasing and frame["utilisation"].max() < 1
    parts = frame[["batching_s", "queue_s", "pass_s", "stragglers_s"]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(frame["p99_s"].to_numpy())


def test_more_is_carried_by_more_replicas() -> None:
    one = service_load(ServiceQuestion(served=ONE, requests=20_000, limit_s=3e-3))
    many = service_load(
        ServiceQuestion(served=ONE, requests=20_000, limit_s=3e-3, qps=3.5 * one.best.rate_per_s)
    )
    assert (one.replicas, many.replicas, many.gpus) == (1, 4, 16)
    assert many.asked.run.quantile(0.99) <= 3e-3
    assert many.low_per_s == pytest.approx(many.best.rate_per_s, rel=0.1)  # this pass has no band


def test_a_short_trace_tells_the_machine_and_not_its_own_length() -> None:
    trace = ArrivalTrace(Poisson(1).times(1e3, 1, 500), "a short trace")
    question = ServiceQuestion(served=ONE, requests=10_000, limit_s=3e-3)
    short, endless = (service_load(replace(question, arrivals=each)) for each in (trace, Poisson(2)))
    assert short.best.rate_per_s == pytest.approx(endless.best.rate_per_s, rel=0.03)


def test_no_batch_that_can_be_asked_for_carries_more_than_the_best() -> None:
    question = ServiceQuestion(served=ONE, requests=10_000, limit_s=3e-3)
    for arrivals in (Poisson(1), ArrivalTrace(Poisson(1).times(1e3, 1, 500), "a short trace")):
        _, free, tried = sized(replace(question, arrivals=arrivals), str)
        for batch in (each.batch for each in tried):
            _, one, _ = sized(replace(question, arrivals=arrivals, batch=batch), str)
            assert one.rate_per_s <= free.rate_per_s * 1.01


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_trace_is_repeated_as_a_copy_of_it_would_be(replicas: int) -> None:
    """The opponent: copies one mean gap apart, of which every request is dealt by hand."""
    once = np.cumsum(np.random.default_rng(4).standard_exponential(150))
    gap = (once[-1] - once[0]) / 149
    copies = np.concatenate([once - once[0] + k * 150 * gap for k in range(40)])
    trace = ArrivalTrace(once, "a trace")
    times = trace.times(2.0, replicas, 1200, 2)
    places = np.searchsorted(copies * trace.rate_per_s / (2.0 * replicas), times * (1 - 1e-12))
    assert times[times < 5900 / (2.0 * replicas)] == pytest.approx(
        (copies * trace.rate_per_s / (2.0 * replicas))[places[times < 5900 / (2.0 * replicas)]]
    )
    if replicas == 1:
        assert places.tolist() == list(range(1, 2400, 2))
    assert 2400 / times[-1] == pytest.approx(2.0, rel=0.08)


def test_what_cannot_be_carried_says_what_can() -> None:
    with pytest.raises(BadInputError) as short:
        service_load(ServiceQuestion(served=ONE, requests=20_000, limit_s=5e-4))
    assert "1.01 ms" in short.value.next_step  # 0.4 + 0.2 + 0.4 ms, and 5 us of one sample
    with pytest.raises(BadInputError) as few:
        service_load(ServiceQuestion(served=ONE, requests=20_000, limit_s=3e-3, qps=1e9, replicas=2))
    carries = re.search(r"at most ([\d.]+) k requests/s; it takes ([\d ]+) rep", few.value.next_step)
    assert carries and 2e9 / float(carries[1]) / 1e3 == pytest.approx(
        float(carries[2].replace(" ", "")), rel=0.02
    )
    with pytest.raises(BadInputError, match="no load is answered"):
        service_load(ServiceQuestion(served=ONE, requests=20_000, limit_s=1.2e-3, batch=512, wait_s=1.1e-3))


def test_a_limit_just_above_a_lone_request_is_kept_at_few_requests() -> None:
    """The opponent: p99 of that load, simulated at length. Between them and the capacity nothing is."""
    _, best, _ = sized(ServiceQuestion(served=ONE, requests=20_000, limit_s=1.1e-3, batch=16), str)
    rule, alone = best.rule, ONE.total(1)
    assert 0 < best.rate_per_s < 0.1 / alone
    replica = ServiceQuestion(served=ONE, limit_s=1.1e-3).replica(1)
    assert replica.p99(rule, best.rate_per_s, (200_000, 200)) <= 1.1e-3 * 1.02
    assert replica.alone() == pytest.approx(alone, rel=0.02)


def test_tables_that_do_not_fit_are_no_matter_of_the_limit() -> None:
    none = replace(ONE, fits=np.zeros_like(ONE.fits))
    with pytest.raises(BadInputError, match="do not fit on"):
        service_load(ServiceQuestion(served=none, requests=20_000, limit_s=1.0))


# --- arrivals ---------------------------------------------------------------------------------------------


def test_a_trace_of_poisson_arrivals_is_poisson() -> None:
    times = Poisson(11).times(5000.0, 1, 200_000)
    trace = ArrivalTrace(times, "a trace")
    rule = Rule(64, 0.0)
    for replicas in (1, 3):
        mine = Replica(ONE, trace, 3e-3, replicas=replicas).run(rule, 5000.0, (60_000, 100))
        other = Replica(ONE, Poisson(2), 3e-3).run(rule, 5000.0, (60_000, 100))
        assert mine.quantile(0.99) == pytest.approx(other.quantile(0.99), rel=0.03)
    assert trace.rate_per_s == pytest.approx(5000, rel=0.01)


def test_bursts_are_late_where_poisson_arrivals_are_not() -> None:
    gaps = np.where(np.arange(60_000) % 600 < 1, 0.2, 1e-6)  # 600 at once, then nobody
    trace = ArrivalTrace(np.cumsum(gaps), "bursts")
    bursts, even = (
        Replica(ONE, arrivals, 1.0).run(Rule(32, 0.0), trace.rate_per_s, (60_000, 20)).quantile(0.99)
        for arrivals in (trace, Poisson(1))
    )
    assert bursts > 3 * even


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1\n2\n", "2 times"),
        ("\n".join(["0.1"] * 99 + ["soon"]), "line 100: 'soon' is not a time"),
        ("\n".join(map(str, range(100, 0, -1))), "line 2: 99 s comes before"),
        ("\n".join(["3"] * 200), "all requests come at once"),
        ("\n".join(["nan"] * 200), "line 1"),
    ],
)
def test_a_file_of_arrivals_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "times.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError, match=re.escape(said)):
        read_arrivals(file)


# --- slow ranks -------------------------------------------------------------------------------------------


def a_spread(floor_s: float = 0.0, share: float = 1.0) -> RankDelay:
    return RankDelay(floor_s, floor_s, floor_s, share, share, share, Evidence.ASSUMED, "")


def test_delays_have_the_mean_of_more_ranks_than_were_measured() -> None:
    late = lateness(a_spread(), (8, 64, 0), 64)
    assert late is not None
    means = late.draws.mean(axis=0)
    grown = queueing.slowest_delay(1.0, 64) - queueing.slowest_delay(1.0, 8)
    assert means == pytest.approx([float(grown), 0.0, 0.0], abs=0.03)
    quantile = queueing.slowest_quantile(1.0, 64, 0.99) - queueing.slowest_delay(1.0, 8)
    assert np.quantile(late.draws[:, 0], 0.99) == pytest.approx(float(quantile), rel=0.04)
    assert lateness(a_spread(0.0, 0.0), (8,), 64) is None


def test_a_cell_of_large_messages_says_nothing_of_the_slowest_rank_of_small_ones() -> None:
    """80 GPUs were measured from 32 MiB on, 8 at KiB; between two sizes of a cell it counts."""
    from perfmodel.projections import project_one

    setting = project_one(table_bytes=10e12).setting
    found = measured_ranks(setting, "all_to_all", [2**10, 2**14, 2**20, 2**25, 2**28, 2**45], 152)
    cells = [c for c in setting.links.times.calibration.curves if c.collective == "all_to_all"]  # type: ignore[union-attr]
    for size, ranks in zip([2**10, 2**14, 2**20, 2**25, 2**28], found, strict=False):
        fit = [c.gpus for c in cells if c.anchor_bytes[0] * 0.999 <= size <= c.anchor_bytes[-1] * 1.001]
        assert ranks == max(fit)
    assert (found[0], found[4]) == (8, 80)
    last = max(c.anchor_bytes[-1] for c in cells)
    assert found[5] == max(
        c.gpus for c in cells if c.anchor_bytes[-1] > 0.999 * last
    )  # beyond all: the nearest
    assert measured_ranks(setting, "all_to_all", [2**10], 1) == [1]


def test_delays_follow_the_ranks_that_each_size_was_measured_on() -> None:
    """8 ranks at 1 sample and 64 at 3: H_64 - H_8 more is added to the first, and half of it at 2."""
    at = np.array([1.0, 3.0])
    late = lateness(a_spread(), ((8, 64), (0, 0)), 64, at=at)
    assert late is not None
    grown = float(queueing.slowest_delay(1.0, 64) - queueing.slowest_delay(1.0, 8))
    times = np.array([1.0, 2.0])
    means = [late.delays(times, samples).mean(axis=0) for samples in (1, 2, 3)]
    for mean, part in zip(means, (1, 0.5, 0), strict=True):
        assert mean == pytest.approx([part * grown, 0.0], abs=0.03)
    alike = lateness(a_spread(), (64, 0), 64)
    assert alike is not None and (alike.draws == late.draws).all() and alike.more_of(at).size == 0


def test_a_simulated_pass_has_the_delay_of_its_size() -> None:
    """Requests far apart, batches of one: each takes its pass and d of one sample; by hand, d = 1 ms x 2."""
    at = np.array([1.0, 4096.0])
    late = Lateness(1e-3, 0.0, np.zeros((1, 3)), np.array([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), at)
    come = np.arange(100.0)
    run, plain = (simulate(ONE, Rule(1, 0.0, overlap=False), come, each) for each in (late, None))
    assert run.latency_s - plain.latency_s == pytest.approx(2e-3, rel=1e-6)
    replica = Replica(ONE, Poisson(), 1.0, late)
    rule = Rule(1, 0.0, overlap=False)
    assert replica.capacity(rule) == pytest.approx(1 / (ONE.total(1) + 2e-3))


def test_shipped_delays_are_those_of_the_samples() -> None:
    frame = load_samples(backend="nccl")
    rows = frame[(frame["source_id"] == "pplx_kernels") & frame["note"].str.contains("sd=")]
    sd = np.array([float(re.search(r"sd=([\d.]+) us", note)[1]) * 1e-6 for note in rows["note"]])  # type: ignore[index]
    scale = queueing.delay_scale(sd, rows["gpus"].to_numpy())
    small = rows["payload_bytes"].to_numpy() < 1e7
    constants = load_service_constants()
    for key, values in (
        ("rank_delay_floor_s", scale[small]),
        ("rank_delay_share", (scale / rows["time_s"].to_numpy())[~small]),
    ):
        found = constants.quantity(key)
        assert values.size == 5
        assert found.value == pytest.approx(np.exp(np.log(values).mean()), rel=0.02)
        assert found.log_sd == pytest.approx(np.log(values).std(ddof=1), rel=0.05)
        assert found.evidence is Evidence.ASSUMED


def test_delays_of_a_run_are_those_of_its_calls() -> None:
    """Calls of 8 ranks whose delays are exponential with mean 3 us + 5 % of the time."""
    random, visits, points = np.random.default_rng(3), {}, {}
    for size in range(10, 26):
        point = Point(
            kind=PointKind.COLLECTIVE, operation="all_to_all", backend="mpi", clock=Clock.EAGER,
            payload_bytes=2**size, gpus=8, gpus_per_node=8,
        )  # fmt: skip
        time = 20e-6 + 2**size / 10e9
        late = (3e-6 + 0.05 * time) * random.standard_exponential((40, 8)).max(axis=1)
        points[point.key] = point
        visits[point.key] = [
            Visit(key=point.key, round=1, at="", times_s=(time + late).tolist(), checked=1, bytes_sent=1)
        ]
    header = RunHeader(fingerprint="f" * 8, started_at="", machine="m", stack={}, ranks=8, nodes=1)
    finishes = {key: Finish(key=key, status=Status.OK, median_s=1e-3) for key in points}
    run = Run(header, points, visits, finishes)
    found = spread_of_run(run)
    assert found is not None and found.evidence is Evidence.MEASURED
    assert found.floor_s == pytest.approx(3e-6, rel=0.25)
    assert found.share == pytest.approx(0.05, rel=0.25)
    assert found.share_low < found.share < found.share_high
    batched = {k: [v[0].model_copy(update={"calls_each": 20})] for k, v in visits.items()}
    assert spread_of_run(Run(header, points, batched, finishes)) is None  # means of 20 calls tell no call


def test_slow_ranks_make_it_later_and_are_said() -> None:
    late = ServiceQuestion(
        served=ONE, requests=20_000, limit_s=5e-3, qps=2e5, spread=a_spread(2e-5, 0.02), measured=(4, 0, 4)
    )
    quick = ServiceQuestion(served=ONE, requests=20_000, limit_s=5e-3, qps=2e5)
    a, b = (service_load(each).asked.to_dict() for each in (late, quick))
    assert a["p99_s"] > b["p99_s"] and a["stragglers_s"] > 0 == b["stragglers_s"]


def test_a_lone_request_waits_for_the_slowest_ranks_of_the_steps_that_take_time() -> None:
    """Ranks are 0.2 ms + 30 % of 1 ms late in two collectives, and never in one that takes no time."""
    steps = served((IDS, 1e-3, 0), (GATHER, 0, 0), (BAGS, 1e-3, 0), gpus=4)
    asked = ServiceQuestion(served=steps, limit_s=1, spread=a_spread(2e-4, 0.3), measured=(4, 4, 4))
    late = asked.replica(1).late
    assert late is not None
    slowest = np.quantile(late.draws[:, 0] + late.draws[:, 2], 0.99)
    assert least_latency(asked) == pytest.approx(2e-3 + 0.5e-3 * slowest)
    assert least_latency(replace(asked, measured=None)) == 2e-3


# --- the pass ---------------------------------------------------------------------------------------------


def test_a_pass_is_known_as_well_as_the_nearest_batch() -> None:
    known = replace(ONE, evidence=(Evidence.MEASURED, Evidence.EXTRAPOLATED))  # at 1 and 4096 samples
    found = [known.evidence_at(samples) for samples in (1, 2000, 2100, 9000)]
    assert found == [Evidence.MEASURED] * 2 + [Evidence.EXTRAPOLATED] * 2


def test_a_projected_pass_is_the_projection() -> None:
    from perfmodel.projections import project_one

    found = projected_pass({"table_bytes": 10e12}, 152, 4096)
    for batch in (1, 100, 1024):
        answer = project_one(table_bytes=10e12, gpus=152, batch=batch)
        assert found.total(batch) == pytest.approx(answer.time_s, rel=2e-3)
    assert [step.device for step in found.steps].count("network") == 4
    setting = project_one(table_bytes=10e12).setting
    assert measured_ranks(setting, "reduce_scatter", 2**26, 152) == [80]
    assert measured_ranks(setting, "reduce_scatter", 2**26, 4) == [4]
    assert spread_of(None).evidence is Evidence.ASSUMED


def test_the_pass_of_a_tier_or_of_one_memory_is_its_projection(cli: Any) -> None:
    from perfmodel.projections import project_one

    tier: dict[str, Any] = {"table_bytes": 1e12, "tier": "uvm-caching:5%", "distribution": "zipf:1.05"}
    memory: dict[str, Any] = {"table_bytes": 10e12, "local_memory": (10e12, 3e12, 3e-6, 16)}
    for asked in (tier, memory):
        gpus = project_one(**asked).gpus
        found = projected_pass(asked, gpus, 1024)
        for batch in (4, 1024):
            answer = project_one(**asked, batch=batch)
            assert found.total(batch) == pytest.approx(answer.time_s, rel=2e-3) and answer.gpus == gpus
    assert "(uvm-caching:5%)" in projected_pass(tier, 2, 4).rows
    assert "16 GPUs, 3.00 µs away" in found.rows
    words = (
        "load",
        "--table-size",
        "1TB",
        "--p99",
        "5ms",
        "--batch",
        "64",
        "--wait",
        "0s",
        "--requests",
        "10000",
    )
    text = " ".join(cli(*words, "--no-overlap", "--tier", "uvm").out.split())
    assert "rows in host memory (uvm): a replica has that of its nodes for itself alone" in text


def test_a_planned_pass_is_the_plan() -> None:
    from perfmodel.passes.cost import Evaluator
    from perfmodel.plan import PlanTables
    from perfmodel.plan.files import read_plan

    tables = PlanTables.load("criteo-kaggle")
    plan = read_plan(Path(__file__).parents[2] / "docs" / "examples" / "criteo-kaggle.plan.json", tables)

    def evaluator(batch: int) -> Evaluator:
        return Evaluator.on("h100-sxm-ib", tables, batch, plan.gpus)

    found = planned_pass(evaluator, plan, 80e9, (1, 256, 1024))
    assert found.total(256) == pytest.approx(evaluator(256).cost(plan).time_s)
    assert found.gpus == plan.gpus
    with pytest.raises(BadInputError, match="does not fit"):
        planned_pass(evaluator, plan, 1e3, (1, 2))


# --- the command ------------------------------------------------------------------------------------------

LINE = ("load", "--table-size", "10TB", "--qps", "500k", "--p99", "10ms", "--batch", "64", "--wait", "0s")
LINE += ("--requests", "10000", "--sharding", "row-wise", "--no-overlap")


def test_the_screen_and_the_document(cli: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = cli(*LINE)
    assert text.code == 0, text.err
    assert text.out.startswith("500 k requests/s within 10.0 ms (p99) take 152 GPUs.")
    assert max(map(len, text.out.splitlines())) <= 100
    found = json.loads(cli(*LINE, "--json").out)
    assert found["gpus"] == found["replicas"] * found["gpus_per_replica"] == 152
    assert found["asked"]["load_per_s"] == 500e3 and found["batch"] == 64
    assert found["stragglers"]["evidence"] == "assumed"
    assert "p99_s" in cli(*LINE, "--csv").out.splitlines()[0]


@pytest.mark.parametrize(
    ("asked", "given", "carries", "without_limit", "binds"),
    [
        (9e4, None, 1e5, 1e6, "tables"),  # one copy carries it
        (1e6, None, 1e5, 5e5, "p99"),  # 10 copies, and 2 without a limit
        (1e6, None, 1e5, 1.05e5, "load"),  # 10 of either
        (None, None, 1e5, 5e5, "p99"),
        (None, None, 1e5, 1e5, "load"),
        (1e6, 12, 1e5, 5e5, "replicas"),
    ],
)
def test_what_decides_the_number_of_gpus_is_said(
    asked: float | None, given: int | None, carries: float, without_limit: float, binds: str
) -> None:
    one: dict[str, Any] = {"served": ONE, "requests": 10_000, "batch": 64, "wait_s": 0.0, "overlap": False}
    run = service_load(ServiceQuestion(**one, limit_s=3e-3, qps=1e5))
    question = replace(run.question, qps=asked, replicas=given, samples=4.0)
    found = replace(
        run,
        question=question,
        replicas=given or round(np.ceil((asked or carries) / carries)),
        best=replace(run.best, rate_per_s=carries, capacity_per_s=without_limit),
        asked=replace(run.asked, load_per_s=asked or carries),
    )
    assert found.binds == found.to_dict()["binds"] == binds
    words = " ".join(headline(found).split())
    assert most_words(found) in words and "with this batch and wait" in words
    assert ("without a limit 8 GPUs would do" in words) == (binds == "p99" and asked is not None)
    assert "a request is 4 samples" in words
    assert "a request is 1 sample (--samples)" in headline(run)


def test_in_python_as_on_the_command_line(cli: Any) -> None:
    import perfmodel

    options: dict[str, Any] = {"table_bytes": 10e12, "batch": 64, "wait_s": 0.0, "overlap": False}
    frame = perfmodel.load(500e3, 10e-3, requests=10_000, sharding="row-wise", **options)
    found = json.loads(cli(*LINE, "--json").out)
    assert frame["p99_s"].tolist() == pytest.approx([row["p99_s"] for row in found["loads"]])
    assert frame.attrs["answer"]["gpus"] == 152
    with pytest.raises(BadInputError, match="p99_s"):
        perfmodel.load(500e3, table_bytes=10e12)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--table-size", "10TB", "--qps", "500k"), "--p99"),
        (("--qps", "500k", "--p99", "10ms"), "--table-size"),
        (("--table-size", "10TB", "--qps", "5x", "--p99", "10ms"), "'x' is not a unit"),
        (("--table-size", "10TB", "--qps", "5k", "--p99", "10"), "a time needs a unit"),
        (("--table-size", "10TB", "--p99", "10ms", "--wait", "10ms"), "late before its pass"),
        (("--table-size", "10TB", "--p99", "10ms", "--wait", "-1us"), "a time is 0 or more"),
        (("--table-size", "10TB", "--p99", "100us"), "below what the pass itself takes"),
        (
            ("--model", "criteo-kaggle", "--gpus", "1", "--p99", "1ms", "--batch", "1", "--wait", "1us"),
            "is one request",
        ),
        (("--table-size", "10TB", "--p99", "10ms", "--batch", "1000000000"), "does not fit"),
        (("--table-size", "10TB", "--p99", "10ms", "--plan", "nowhere.json"), "--model"),
        (("--table-size", "10TB", "--p99", "10ms", "--arrivals", "nowhere.txt"), "nowhere.txt"),
        (
            ("--model", "criteo-kaggle", "--p99", "1ms", "--plan", "p.json", "--tier", "uvm"),
            "--plan and --tier",
        ),
        (("--table-size", "10TB", "--p99", "1ms", "--tier", "uvm,ssd"), "would both hold all rows"),
        (("--table-size", "10TB", "--p99", "1ms", "--tier", "uvm-caching:0%"), "from 0.0000001 to 100 %"),
        (("--table-size", "10TB", "--p99", "9ms", "--tier", "uvm-caching:99%", "--gpus", "8"), "GPU"),
    ],
)
def test_what_cannot_be_asked(cli: Any, words: tuple[str, ...], said: str) -> None:
    outcome = cli("load", *words)
    assert outcome.code == 2 and said in " ".join(outcome.err.split()), outcome.err


# --- the page ---------------------------------------------------------------------------------------------


def test_the_page_has_what_the_answer_says(tmp_path: Path, cli: Any) -> None:
    import plotly.graph_objects as go

    from perfmodel.projections import project_one
    from perfmodel.report.figures.block import Block
    from perfmodel.report.page.load_page import load_page

    answer = service_load(ServiceQuestion(served=ONE, requests=10_000, limit_s=3e-3, qps=2e5))
    page = load_page(
        answer, hourly_cost(answer, "h100-sxm-ib"), project_one(table_bytes=10e12).setting, "perfmodel load"
    )
    assert page.card.sentence.startswith("200 k requests/s within 3.00 ms (p99) take 4 GPUs")
    shown = {block.name: block for block in page.blocks()}
    assert list(shown) == ["latency", "made-of", "batches"]
    for block in shown.values():
        assert isinstance(block, Block)
        go.Figure(block.figure.to_dict())  # checked by plotly
    latency = shown["latency"]
    assert isinstance(latency, Block)
    assert [row["load_per_s"] for row in latency.data] == sorted(row["load_per_s"] for row in latency.data)
    assert latency.data[-1]["p99_s"] > 3e-3 > latency.data[0]["p99_s"]  # it shows where the limit is passed
    names = [trace["name"] for trace in latency.figure.to_dict()["data"]]
    assert names[:3] == ["p99", "p95", "p50"]
    limit, asked = latency.figure.layout.shapes
    assert (limit.y0, asked.x0) == (3e-3, 2e5)
    target = tmp_path / "load.html"
    outcome = cli(*LINE, "--report", str(target))
    html = target.read_text(encoding="utf-8")
    assert "p99, closed form" in html and "Closed forms beside the simulation, at 500 k requests/s" in html
    assert outcome.code == 0 and target.stat().st_size > 1e5
    assert cli(*LINE, "--report", str(target)).code == 2  # it exists


def test_a_load_however_small_takes_one_replica() -> None:
    answer = service_load(ServiceQuestion(served=ONE, requests=10_000, limit_s=3e-3, qps=1e-3))
    assert (answer.replicas, answer.gpus) == (1, 4)


def test_the_fewest_replicas_of_a_trace() -> None:
    gaps = np.random.default_rng(1).standard_exponential(20_000) * (1 + 9 * (np.arange(20_000) % 2000 < 100))
    trace = ArrivalTrace(np.cumsum(gaps), "a trace")
    question = ServiceQuestion(
        served=ONE,
        requests=10_000,
        limit_s=3e-3,
        qps=2e6,
        arrivals=trace,
        batch=64,
        wait_s=0.0,
        overlap=False,
    )
    found = service_load(question)
    assert found.asked.run.quantile(0.99) <= 3e-3
    with pytest.raises(BadInputError, match="cannot carry"):
        service_load(replace(question, replicas=found.replicas - 1))


def test_replicas_are_within_what_the_model_describes() -> None:
    question = ServiceQuestion(served=ONE, requests=10_000, limit_s=3e-3, batch=64, replicas=2**18 + 1)
    with pytest.raises(BadInputError, match="1 048 580 GPUs: more than this model describes"):
        service_load(question)


def test_whose_load_it_is_and_why_overlap_is_slower(cli: Any) -> None:
    small = ("--batch", "1024", "--wait", "0s")
    free = cli("load", "--table-size", "10TB", "--p99", "10ms", *small, *LINE[7:]).out
    assert "asked" not in free and re.search("above$", free, re.MULTILINE)
    one = cli("load", "--table-size", "10TB", "--qps", "1", "--p99", "10ms", *small, *LINE[7:]).out
    assert (
        one.startswith("1 request/s within 10.0 ms (p99) takes 152 GPUs.")
        and "1 requests/s" not in one
        and "asked" in one
    )
    words = "one batch after the other is faster (--no-overlap"
    slow = cli(*LINE[:-1], "--overlap").out
    assert words in " ".join(slow.split()) and words not in " ".join(cli(*LINE).out.split())


def test_what_is_simulated_is_told() -> None:
    told: list[str] = []
    service_load(
        ServiceQuestion(served=ONE, requests=10_000, limit_s=3e-3, batch=64, wait_s=0.0), told.append
    )
    assert told[0] == "a batch of 64 on each GPU" and told[-1] == "load 7 of 7"


def test_examples_of_the_help_are_no_wider_than_a_terminal(cli: Any) -> None:
    lines = cli("load", "--help").out.splitlines()
    assert max(len(line.strip(" │|")) for line in lines if "perfmodel load" in line) <= 76
