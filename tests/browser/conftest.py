"""One browser for all pages, and the two pages that are opened in it beside the live one and the site."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import BAD, Chromium

from perfmodel import resources
from perfmodel.cli import run

LONG = "a_set_of_tables_with_a_name_that_nobody_would_want_to_type_twice_in_one_day_" * 2


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    chromium = Chromium(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def report_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 10 TB."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert run(["report", "--table-size", "10TB", "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def plan_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A training plan with dense layers and hot rows, and its document; names are long, and look like HTML.

    In little memory: no table is on every GPU whole.
    """
    folder, out = tmp_path_factory.mktemp("plan"), io.StringIO()
    shapes = [(2_000_000 >> at // 2, 32 << at % 3, 1 + at) for at in range(12)]
    rows = [f"{BAD}{at if at else LONG},{','.join(map(str, shape))}" for at, shape in enumerate(shapes)]
    (folder / f"{BAD}.csv").write_text("\n".join(["name,rows,dim,pooling", *rows, ""]))
    dense = resources.data_path("dense", "dlrm-dcnv2.toml").read_text()
    dense = re.sub(r'^name = ".*"', f'name = "{BAD}"', dense, count=1, flags=re.MULTILINE)
    (folder / f"{BAD}.toml").write_text(dense)
    words = ["--model", str(folder / f"{BAD}.csv"), "--gpus", "8", "--set", "max_hbm=400MB"]
    words += ["--dense", str(folder / f"{BAD}.toml"), "--objective", "throughput", "--effort", "quick"]
    page = folder / "plan.html"
    with contextlib.redirect_stdout(out):
        code = run(["plan", *words, "--distribution", "zipf:1.05", "--out", str(page), "--json"])
    assert code == 0
    return page, json.loads(out.getvalue())
