"""Distributions of ids: names, files, the shipped histograms and the traces that they are fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfmodel.errors import BadInputError
from perfmodel.model.popularity import build_popularity
from perfmodel.resources import data_path
from perfmodel.schema.workload import ONE_ROW, UNIFORM, parse_distribution, zipf

ROOT = Path(__file__).parents[2]


def test_names() -> None:
    assert parse_distribution("uniform") == parse_distribution("zipf:0") == UNIFORM
    assert parse_distribution("zipf:1.05") == zipf(1.05) and zipf(1.05).skew == 1.05 and zipf(5).skew == 5
    assert parse_distribution(" One-Row ") == ONE_ROW
    assert parse_distribution("histogram:Reuse-Low").name == "histogram:reuse-low"


@pytest.mark.parametrize(
    ("text", "said", "advice"),
    [
        ("zipfian", "'zipfian' is not known", "one of: uniform, zipf:A"),
        ("histogram:", "is not known", "one of: uniform"),
        ("histogram:reuse-lo", "histogram 'reuse-lo' is not known", "did you mean reuse-low? known: fbgemm"),
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


@pytest.mark.parametrize(
    ("lines", "bins"),
    [
        ("0.5,0.25\n0.1,0.75\n0.4,0\n0,0", ((0.1, 0.75), (0.5, 0.25), (0.4, 0.0))),
        ("0.33333,0.33333\n" * 3, ((0.33333, 0.33333),) * 3),
    ],
)
def test_a_file_in_any_order_and_rounded(tmp_path: Path, lines: str, bins: object) -> None:
    assert parse_distribution(written(tmp_path, f"row_share,lookup_share\n{lines}\n")).bins == bins


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("row_share,lookup_share\n0.5,0.5\n0.5,-0.5", "line 3: '0.5,-0.5' is not two shares"),
        ("row_share,lookup_share\n0.5,0.5\n0.6,0.5", "row_share sums to 1.1"),
        ("row_share,lookup_share\n0.5,0.5\nhalf,0.5", "line 3: 'half,0.5' is not two shares"),
        ("row_share,lookup_share\n0.5,0.5\n0.5,0.499", "lookup_share sums to 0.999"),
        ("row_share,lookup_share\n0.5,0.5\n0.5", "line 3: 1 fields instead of 2"),
        ("row_share,lookup_share\n1,0.5\n0,0.5", "line 3: '0,0.5' is not two shares"),
        ("row_share,lookup_share\n1,nan", "line 2: '1,nan' is not two shares"),
        ("row_share,lookup_share\n0.5,1.5\n0.5,inf", "lookup_share sums to inf"),
        ("row_share,lookup_share\n", "row_share sums to 0"),
        ("rows,p\n1,1", "has the columns 'rows, p'"),
    ],
)
def test_a_file_that_holds_no_shares_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        parse_distribution(written(tmp_path, f"{text}\n"))
    assert said in refused.value.message


def test_the_example_of_the_docs_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    text = page.split("## Distributions of ids")[1].split("```csv\n")[1].split("```")[0]
    assert parse_distribution(written(tmp_path, text)).bins[0] == (0.001, 0.4)


@pytest.mark.parametrize(
    ("name", "trace", "rows"),
    [
        ("fbgemm-t856", "fbgemm_t856_bs65536.pt", 327_700_000),
        ("fbgemm-t788", "fbgemm_t788_bs131072_0.pt", 185_600_000),
        ("reuse-low", "reuse_low_table_500K", 484_000),
        ("reuse-medium", "reuse_medium_table_500K", 141_400),
    ],
)
def test_a_trace_drawn_anew_has_as_many_distinct_rows(name: str, trace: str, rows: int) -> None:
    """Within 0.2 % of the published trace that the shipped file was fitted to."""
    reuse = pd.read_csv(data_path("reference", "reuse_histograms.csv"))
    published = reuse[(reuse["dataset"] == trace) & (reuse["stat"] == "indices_unique")].iloc[0]
    ids = build_popularity(parse_distribution(f"histogram:{name}"), np.float64(rows))
    distinct = ids.unique(float(published["ids"]), slice(None))
    assert distinct == pytest.approx(float(published["unique_ids"]), rel=0.002)
