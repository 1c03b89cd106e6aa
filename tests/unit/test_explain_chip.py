"""``chip explain``: the numbers of an equation give its time, times add up to what others print."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from cli_calls import Outcome, called

from perfmodel.errors import BadInputError
from perfmodel.onechip.explain import WayExplained, explain_way
from perfmodel.onechip.ways import ways_map
from perfmodel.onechip.work import WAYS, Way
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import ONE_ROW, UNIFORM, Distribution, zipf

CASES = [("ascend-910", 600, 64, 4.0), ("h100-sxm", 300, 32, 3.0), ("ascend-910b", 50, 128, 1.0)]


def explained(chip: str, way: Way, rows: int, dim: int, pooling: float, ids: Distribution) -> WayExplained:
    return explain_way(
        load_chip(chip), way, rows=rows, dim=dim, element_bytes=4, batch=512, pooling=pooling, ids=ids
    )


def numbers(found: WayExplained, title: str) -> tuple[dict[str, float], float]:
    part = next(part for part in found.parts if part.title.startswith(title))
    return {term.symbol: term.value for term in part.terms}, part.time_s


SAMPLE = random.Random(7).sample(list(product(WAYS, CASES, (UNIFORM, zipf(1.05), ONE_ROW))), 7)


@pytest.mark.parametrize(
    ("way", "case", "ids"), SAMPLE, ids=[f"{way.label}-{case[0]}-{ids.name}" for way, case, ids in SAMPLE]
)
def test_the_steps_add_up_to_the_map_of_ways(
    way: Way, case: tuple[str, int, int, float], ids: Distribution
) -> None:
    chip, rows, dim, pooling = case
    found = explained(chip, way, rows, dim, pooling, ids)
    cell = ways_map(load_chip(chip), dim, 4, pooling, ids, rows=[rows], look_ups=[512 * pooling])
    assert sum(part.time_s for part in found.parts) == pytest.approx(found.time_s, rel=1e-12)
    assert found.time_s == pytest.approx(cell.seconds[way, 0, 0], rel=1e-12)
    assert all(part.computed.source and part.computed.text for part in found.parts)


def test_the_numbers_of_each_equation_give_its_time() -> None:
    for chip, rows, dim, pooling in CASES:
        for way in WAYS:
            found = explained(chip, way, rows, dim, pooling, UNIFORM)
            of, time_s = numbers(found, "ids")
            assert of["p"] * of["t_0"] + 8 * (of["n"] + of["b"]) / of["BW"] == pytest.approx(time_s)
            of, time_s = numbers(found, "bags")
            assert 4 * of["D"] * of["b"] / of["BW"] == pytest.approx(time_s)
            if way == Way.L1:
                of, time_s = numbers(found, "rows are looked up")
                assert of["n"] * of["row"] / of["BW_L1"] == pytest.approx(time_s)


def test_a_symbol_of_the_table_is_the_same_in_every_step() -> None:
    for chip, rows, dim, pooling in CASES:
        for way in WAYS:
            found = explained(chip, way, rows, dim, pooling, UNIFORM)
            own = {term.symbol: term.value for term in found.shape}
            shared = [term for part in found.parts for term in part.terms if term.symbol in own]
            assert shared and all(term.value == own[term.symbol] for term in shared)


def test_one_column_is_one() -> None:
    found = explain_way(
        load_chip("ascend-910"), Way.GM, rows=9, dim=1, element_bytes=1, batch=4, pooling=1830
    )
    texts = [term.text for term in found.shape]
    assert "1 column of 1 byte" in texts and "1 830" in texts


def test_gathering_by_hand() -> None:
    of, time_s = numbers(explained("ascend-910", Way.GM, 600, 64, 4.0, UNIFORM), "rows are gathered")
    lined_up = of["l_max"] + (of["n"] - 1) * of["row"] / of["BW"]
    assert max(of["n"] * of["l"] / of["k"], lined_up) == pytest.approx(time_s)
    of, time_s = numbers(explained("h100-sxm", Way.GM, 5000, 32, 3.0, UNIFORM), "rows are gathered")
    n, k, u = of["n"], of["k"], of["u"]
    each = max(((n - k - u) * of["l_0"] + u * of["l_u"]) / (n - k) / k, of["row"] / of["BW"])
    waves = of["l_1"] + max(n - 2 * k, 0) * each + of["l_0"] + of["d"]
    assert max(waves, of["l_max"] + (n - 1) * of["row"] / of["BW"]) == pytest.approx(time_s)


def test_a_stream_by_hand() -> None:
    """Several chunks, and look-ups of a pass that take longer than one streams."""
    of, time_s = numbers(explained("h100-sxm", Way.GM_UB, 3000, 32, 3.0, UNIFORM), "the table streams")
    s, g, c, q, e, wait = (of[name] for name in "sgcqel")
    assert c > 2
    rest = (1 - q) * g / (c - 1)

    def slot(busy: float) -> float:
        return max(s, busy, (s + busy + wait) / 2)

    one = wait + s + slot(e + q * g) + (c - 2) * slot(e + rest) + e + rest
    assert of["p"] * (one + of["x"]) == pytest.approx(time_s)


def test_a_hot_channel_is_said() -> None:
    slow = load_chip("ascend-910").with_overrides({"cache_bytes_per_s": "10GB/s"})
    found = explain_way(slow, Way.GM, rows=600, dim=64, element_bytes=4, batch=512, pooling=4, ids=ONE_ROW)
    part = next(part for part in found.parts if part.title == "rows are gathered")
    assert "hottest row gives no more" in part.notes[0]
    assert not explained("ascend-910", Way.GM, 600, 64, 4.0, UNIFORM).parts[1].notes


def run(*words: str) -> Outcome:
    return called("chip", "explain", *words)


def test_the_text_has_each_number_with_its_source() -> None:
    words = ("--rows", "500", "--dim", "64", "--batch", "4096", "--pooling", "4", "--set", "id_s=1ns")
    code, out, err = run("gm_ub", "--chip", "h100-sxm", *words)
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    for part in (
        "GM-UB on one core of h100-sxm",
        "1. ids and offsets are read",
        "f(g) = max(s, g",
        "if c > 1",
    ):
        assert part in said
    assert "assumed: id_s = 1.00 ns" in said and "as in chip ways --chip h100-sxm" in said
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("GM", "--chip", "ascend-910"), "how many rows has the table?"),
        (("gather", "--chip", "ascend-910", "--rows", "5"), "known: GM, GM-UB, L1, L1-UB"),
        (("L1", "--chip", "ascend-91", "--rows", "5"), "did you mean ascend-910?"),
        (("L1", "--chip", "h100-sxm", "--rows", "1e9"), "L1 needs 119 GiB of rows"),
        (("GM",), "Missing option '--chip'"),
        (("GM", "--chip", "h100-sxm", "--rows", "0"), "--rows 0 is zero"),
        (("GM", "--chip", "h100-sxm", "--rows", "5", "--pooling", "0"), "--pooling"),
        (("GM", "--chip", "h100-sxm", "--rows", "5", "--batch", "9e12"), "--batch 9000000000000 is more"),
        (("GM", "--chip", "h100-sxm", "--rows", "5", "--dtype", "fp7"), "fp7"),
    ],
)
def test_bad_input_is_refused_in_words(words: tuple[str, ...], message: str) -> None:
    more = ("--dim", "32") if "1e9" in words else ()
    code, out, err = run(*words, *more)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_a_table_without_work_is_refused() -> None:
    with pytest.raises(BadInputError, match="has no work"):
        explain_way(load_chip("a100-sxm"), Way.GM, rows=0, dim=8, element_bytes=4, batch=1, pooling=1)


def test_other_answers_end_with_a_line_that_runs(tmp_path: Path) -> None:
    model = tmp_path / "two.csv"
    model.write_text("name,rows,dim,pooling,dtype\none,600,64,4,fp16\ntwo,90,8,1,fp16\n", encoding="utf-8")
    asked = ("--chip", "ascend-910", "--model", str(model), "--alpha", "1.1", "--effort", "quick")
    ways = ("chip", "ways", "--chip", "h100-sxm", "--dtype", "fp16", "--pooling", "20")
    for words in (("chip", "plan", *asked), ways):
        code, out, _ = called(*words)
        line = out.replace("\\\n", " ").split("perfmodel chip explain ")[-1].splitlines()[0].split()
        assert (code, "--dtype" in line) == (0, True)
        code, out, err = run(*line)
        assert (code, err) == (0, "") and f"{line[0]} on one core of {line[2]}" in out
    changed = called("chip", "ways", "--chip", "h100-sxm", "--set", "id_s=1ns").out
    assert "perfmodel chip explain" not in changed
