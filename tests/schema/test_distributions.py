"""Distributions of ids: names, files, the shipped histograms and the traces that they are fitted to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reuse_histograms import (
    LOWEST_RATE,
    TRACES,
    Reuse,
    counted_rates,
    csv_text,
    fit_system,
    rates_of,
    reuse_of,
    table,
)

from perfmodel.errors import BadInputError
from perfmodel.model.popularity import popularity
from perfmodel.schema.workload import (
    ONE_ROW,
    UNIFORM,
    Distribution,
    list_histograms,
    parse_distribution,
    zipf,
)

ROOT = Path(__file__).parents[2]


def test_names() -> None:
    assert parse_distribution("uniform") == parse_distribution("zipf:0") == UNIFORM
    assert parse_distribution("zipf:1.05") == zipf(1.05) and zipf(1.05).skew == 1.05
    assert parse_distribution(" One-Row ") == ONE_ROW
    assert parse_distribution("histogram:Reuse-Low").name == "histogram:reuse-low"
    assert list_histograms() == sorted(TRACES)


@pytest.mark.parametrize(
    ("text", "said", "advice"),
    [
        ("zipfian", "'zipfian' is not known", "one of: uniform, zipf:A"),
        ("histogram:", "is not known", "one of: uniform"),
        (
            "histogram:reuse-lo",
            "histogram 'reuse-lo' is not known",
            "did you mean reuse-low? known: fbgemm-t788",
        ),
        ("zipf:-1", "-1", ""),
        ("zipf:nan", "nan", ""),
        ("histogram:nothing.csv", "nothing.csv cannot be read", "check the path"),
    ],
)
def test_unknown_names_are_refused(text: str, said: str, advice: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_distribution(text)
    assert said in caught.value.message and advice in str(caught.value.next_step)


def written(folder: Path, text: str) -> str:
    path = folder / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return f"histogram:{path}"


def test_a_file_in_any_order(tmp_path: Path) -> None:
    text = "row_share,lookup_share\n0.9,0.25\n0.1,0.75\n0,0\n"
    assert parse_distribution(written(tmp_path, text)).bins == ((0.1, 0.75), (0.9, 0.25))


def test_rounding_of_a_file_is_no_error(tmp_path: Path) -> None:
    thirds = "row_share,lookup_share\n" + "0.33333,0.33333\n" * 3
    assert len(parse_distribution(written(tmp_path, thirds)).bins) == 3


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("0.5,0.5\n0.5,-0.5", r"line 3: '0.5,-0.5' is not two shares"),
        ("0.5,0.5\n0.6,0.5", r"line 3: row_share sums to 1.1"),
        ("0.5,0.5\nhalf,0.5", r"line 3: 'half,0.5' is not two shares"),
        ("0.5,0.5\n0.5,0.499", r"line 3: lookup_share sums to 0.999 up to here"),
        ("0.5,0.5\n0.5,0.49985", r"line 3: lookup_share sums to 0.99985 up to here"),
        ("0.5,0.5\n0.5", r"line 3: '0.5' is not two shares"),
        ("1,0.5\n0,0.5", r"line 3: look-ups of no rows"),
        ("1,nan", r"line 2: '1,nan' is not two shares"),
        ("", r"has 0 bins"),
    ],
)
def test_a_file_that_holds_no_shares_is_refused(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        parse_distribution(written(tmp_path, f"row_share,lookup_share\n{lines}\n"))


def test_the_example_of_the_docs_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    text = page.split("## Distributions of ids")[1].split("```csv\n")[1].split("```")[0]
    assert parse_distribution(written(tmp_path, text)).bins[0] == (0.001, 0.4)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"has the columns 'rows, p'"):
        parse_distribution(written(tmp_path, "rows,p\n1,1\n"))


def uses(ids: Distribution, reuse: Reuse, rows: float) -> np.ndarray:
    """What a histogram is for: distinct rows of traces, share of the hottest rows, misses of an LRU."""
    bins = popularity(ids, np.round(rows))
    every = slice(None)
    share, asked = np.array(ids.bins).T
    hottest = reuse.unique / rows * np.array([0.001, 0.01, 0.1, 0.5])
    return np.concatenate(
        [
            [bins.unique(reuse.lookups * length, every) for length in (0.001, 0.01, 0.1, 1, 3, 10)],
            np.interp(hottest, np.cumsum(share), np.cumsum(asked)),
            bins.misses(reuse.lookups, reuse.unique * np.array([0.001, 0.01, 0.1, 0.5]), every),
        ]
    )


@pytest.mark.parametrize("name", sorted(TRACES))
def test_shipped_files_are_what_the_fit_gives(name: str, tmp_path: Path) -> None:
    """For what they are used; their coefficients are not compared."""
    reuse = reuse_of(TRACES[name])
    rates = rates_of(reuse)
    shipped_ids = parse_distribution(f"histogram:{name}")
    fitted = parse_distribution(written(tmp_path, csv_text(rates)))
    found, wanted = (uses(ids, reuse, rates.table_rows) for ids in (shipped_ids, fitted))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize("name", sorted(TRACES))
def test_the_fit_is_the_least_and_the_only_one(name: str) -> None:
    """Karush-Kuhn-Tucker of a strictly convex sum; no rate is near the least share that is kept."""
    reuse = reuse_of(TRACES[name])
    rate, matrix, wanted = fit_system(reuse)
    rates = rates_of(reuse)
    share = np.zeros(rate.size)
    share[np.searchsorted(rate, rates.rate)] = rates.rows * rates.rate / reuse.lookups
    slope = matrix.T @ (matrix @ share - wanted)
    steepness = np.linalg.norm(matrix, axis=0) * np.linalg.norm(wanted)
    assert (slope > -1e-8 * steepness).all()
    assert (np.abs(slope) < 1e-8 * steepness)[share > 0].all()
    assert np.linalg.cond(matrix) < 1e5 and share[share > 0].min() > 1e-5


@pytest.mark.parametrize("name", sorted(TRACES))
def test_a_trace_drawn_anew_has_as_many_distinct_rows(name: str) -> None:
    """Within 0.2 % from rates, through the file and the bins; 15 to 27 % too few from counts."""
    reuse = reuse_of(TRACES[name])
    rows = rates_of(reuse).table_rows
    ids = parse_distribution(f"histogram:{name}")
    drawn = popularity(ids, np.round(rows)).unique(reuse.lookups, slice(None))
    assert drawn == pytest.approx(reuse.unique, rel=0.002)
    assert 0.14 < 1 - counted_rates(reuse).unique / reuse.unique < 0.28


def test_the_table_of_the_docs_is_what_the_benchmark_prints() -> None:
    assert table() in (ROOT / "docs" / "model.md").read_text(encoding="utf-8")


def test_rows_that_a_trace_does_not_have_are_counted() -> None:
    """The trace of the table of 500 000 rows has 231 073 of them: 484 000 are said."""
    reuse = reuse_of("reuse_low_table_500K")
    assert rates_of(reuse).table_rows == pytest.approx(500_000, rel=0.04)


def test_rates_of_uniform_ids_by_hand() -> None:
    """1000 rows asked for 2 times on average: 1000 e^-2 are not in the trace, 1000 2 e^-2 once."""
    once, never = 2 * np.exp(-2), np.exp(-2)
    more = 1 - once - never
    reuse = Reuse(
        np.array([0.0, 1.0]),
        np.array([1.0, np.inf]),
        np.array([once, more]) / (1 - never),
        np.array([once, 2 - once]) / 2,
        2000.0,
        1000 * (1 - never),
    )
    rates = rates_of(reuse)
    assert rates.unique == pytest.approx(reuse.unique, rel=1e-3)
    assert rates.table_rows == pytest.approx(1000, rel=0.02)
    assert np.sum(rates.rows * rates.rate) == pytest.approx(2000, rel=1e-3)
    counted = counted_rates(reuse)
    assert counted.table_rows == pytest.approx(reuse.unique)
    for rows, asked in ((0.0, 0.01), (0.01, 0.0), (0.0, 0.0)):  # a share that rounds to nothing: left out
        more = replace(
            reuse,
            low=np.append(reuse.low, 9.0), high=np.append(reuse.high, 9.0),
            row_share=np.append(reuse.row_share, rows), lookup_share=np.append(reuse.lookup_share, asked),
        )  # fmt: skip
        np.testing.assert_array_equal(counted_rates(more).rate, counted.rate)
    assert (rates.rate >= LOWEST_RATE).all()
