"""Traces: what is drawn, what is read, and files that are wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfmodel.errors import BadInputError
from perfmodel.onechip.popular import RowPopularity
from perfmodel.onechip.traces import Trace, check_trace, draw, read_trace

NAMES = ("users", "items")


def tables(rows: tuple[float, ...] = (10, 1000), pooling: tuple[float, ...] = (1, 2.5)) -> Any:
    return SimpleNamespace(rows=np.array(rows, dtype=float), pooling=np.array(pooling, dtype=float))


def test_draws_are_those_of_a_seed() -> None:
    one, same, other = (draw(tables(), 400, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one.ids, same.ids, strict=True))
    assert not np.array_equal(one.ids[1], other.ids[1])
    assert one.batch == 400 and one.ids[0].size == 400
    assert one.ids[1].size == pytest.approx(1000, rel=0.05)
    assert set(np.diff(one.offsets[1]).tolist()) == {2, 3}
    check_trace(one, tables(), NAMES)


def test_draws_follow_the_popularity() -> None:
    popular = [RowPopularity.uniform(10), RowPopularity.of([0.4, 0.6 / 999], [1, 999], 1000)]
    trace = draw(tables(), 4000, popular, scattered=False)
    counts = np.bincount(trace.ids[1], minlength=1000)
    assert counts[0] / trace.ids[1].size == pytest.approx(0.4, abs=0.02)
    assert np.argmax(counts) == 0
    anywhere = draw(tables(), 4000, popular, seed=3)
    assert np.argmax(np.bincount(anywhere.ids[1])) != 0
    large = tables((2.0**23,), (1,))
    far = draw(large, 1000, [RowPopularity.uniform(2.0**23)])
    assert far.ids[0].min() >= 0 and far.ids[0].max() < 2**23 and np.unique(far.ids[0]).size > 990


def test_popularity_of_a_trace() -> None:
    ids = np.array([3, 3, 3, 7], dtype=np.int64)
    found = Trace((ids,), (np.arange(5),)).popularity(tables((10,), (1,)))[0]
    assert found.p.tolist() == [0.75, 0.25, 0.0] and found.rows.tolist() == [1, 1, 8]
    empty = Trace((ids[:0],), (np.zeros(5, dtype=np.int64),)).popularity(tables((10,), (1,)))[0]
    assert empty.p.tolist() == [0.1]


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"batch of 0"):
        draw(tables(), 0)


def test_files_are_read(tmp_path: Path) -> None:
    csv = tmp_path / "t.csv"
    csv.write_text("sample,table,row\n1,users,9\n0,users,4\n0,items,999\n0,items,0\n")
    trace = read_trace(csv, tables(), NAMES)
    assert [ids.tolist() for ids in trace.ids] == [[4, 9], [999, 0]]
    assert [offsets.tolist() for offsets in trace.offsets] == [[0, 1, 2], [0, 2, 2]]
    npz = tmp_path / "t.npz"
    np.savez(
        npz,
        **{f"{name}.ids": ids for name, ids in zip(NAMES, trace.ids, strict=True)},
        **{f"{name}.offsets": at for name, at in zip(NAMES, trace.offsets, strict=True)},
    )
    again = read_trace(npz, tables(), NAMES)
    assert all(np.array_equal(a, b) for a, b in zip(again.ids, trace.ids, strict=True))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("table,sample,row\nusers,0,10\n", r"1 ids of table users are out of range, the first is 10"),
        ("table,sample,row\nusers,0,-1\n", r"out of range"),
        ("table,sample,row\nuser,0,1\n", r"line 2: table 'user'"),
        ("table,sample,row\nusers,-1,1\n", r"line 2: .* sample -1"),
        ("table,sample,row\nusers,0,x\n", r"line 2: not a table, a sample and a row"),
        ("table,sample\nusers,0\n", r"the columns table, sample"),
        ("table,sample,row\nusers,999999999999,1\n", r"line 2: sample 999999999999, row 1"),
        ("table,sample,row\nusers,0,9223372036854775808\n", r"line 2: .* row 9223372036854775808"),
        ("", r"is empty"),
        ("table,sample,row\n", r"offsets of table users"),
    ],
)
def test_wrong_csv_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(BadInputError, match=said):
        read_trace(path, tables(), NAMES)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"users.ids": np.arange(3)}, r"no array 'users.offsets'"),
        ({"users.ids": np.arange(3.0), "users.offsets": np.arange(4)}, r"users.ids is float64"),
        ({"users.ids": np.arange(3), "users.offsets": np.array([0, 2, 1, 3])}, r"offsets of table users"),
        ({"users.ids": np.arange(3), "users.offsets": np.array([0, 1, 2])}, r"offsets of table users"),
        (
            {"users.ids": np.array([2**63, 1], dtype=np.uint64), "users.offsets": np.arange(3)},
            r"users.ids has 9223372036854775808",
        ),
        (
            {"users.ids": np.arange(12), "users.offsets": np.arange(13)},
            r"2 ids of table users are out of range",
        ),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], said: str) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, **arrays)
    with pytest.raises(BadInputError, match=said):
        read_trace(path, tables((10,), (1,)), ("users",))


def test_samples_of_tables_agree(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(
        path,
        **{"users.ids": np.arange(2), "users.offsets": np.arange(3)},
        **{"items.ids": np.arange(3), "items.offsets": np.arange(4)},
    )
    with pytest.raises(BadInputError, match=r"items has 3 samples, users has 2"):
        read_trace(path, tables(), NAMES)


@pytest.mark.parametrize("content", [b"no archive", b"", b"PK\x03\x04 cut off"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"cannot be read"):
        read_trace(path, tables(), NAMES)
    with pytest.raises(BadInputError, match=r"cannot be read"):
        read_trace(tmp_path / "none.npz", tables(), NAMES)
