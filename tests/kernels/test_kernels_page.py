"""The Python of docs/kernels.md runs, and gives what torch gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"


def test_the_example_runs_and_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFMODEL_HOME", str(tmp_path / "not" / "yet"))
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    seen: dict[str, Any] = {}
    exec(code[1], seen)  # the page's own words
    device = seen["device"]
    first = torch.tensor([0, 3, 3], device=device), seen["ids"][:5]
    second = torch.tensor([0, 1, 2], device=device), seen["ids"][5:]
    for table, (offsets, ids) in enumerate((first, second)):
        want = torch.nn.functional.embedding_bag(ids, seen["rows"][table], offsets, mode="sum")
        assert torch.allclose(seen["bags"][:, 64 * table : 64 * (table + 1)], want, atol=1e-6)
    assert seen["faults"].tolist() == [0, -1, 0, -1]
