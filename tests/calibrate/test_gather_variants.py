"""Which variant of gather+pool a launcher takes: the fastest that was timed for the nearest shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.cuda import gather_variants as gv
from calibrate.cuda.gather_layout import RowAccess
from perfmodel.errors import BadInputError

GPU = "NVIDIA H100 80GB HBM3"
SHAPE = gv.GatherShape("fp32", 8, 128, 10**9, 32768, 16.0)
NAMES = ("l1-4-full", "bypass-8-full", "l1-8-half")


def timed(
    shape: gv.GatherShape, alpha: float, times_us: tuple[float, ...], gpu: str = GPU
) -> list[gv.TimedVariant]:
    return [
        gv.TimedVariant(gpu=gpu, alpha=alpha, variant=name, time_s=1e-6 * time_us, **vars(shape))
        for name, time_us in zip(NAMES, times_us, strict=True)
    ]


def test_every_combination_has_a_name_of_its_own() -> None:
    assert len(gv.VARIANTS) == len(gv.BY_NAME) == 8
    assert gv.BY_NAME["bypass-8-half"] == gv.GatherVariant(near=False, accesses=8, half=True)


def test_the_fastest_is_taken_over_all_skews() -> None:
    """Uniform: 10, 9, 12 us; skewed: 5, 10, 4. Over the best: 10/9 5/4, 1 10/4, 12/9 1: the third, 1.33."""
    table = [*timed(SHAPE, 0.0, (10, 9, 12)), *timed(SHAPE, 1.15, (5, 10, 4))]
    assert gv.best_variant(GPU, SHAPE, table).name == "l1-8-half"


def test_the_nearest_shape_is_asked() -> None:
    """A factor of 2 in the row is nearer than one of 8 in the bags."""
    near, far = replace(SHAPE, row_bytes=256), replace(SHAPE, bags=32768 * 8)
    table = [*timed(far, 0.0, (1, 2, 3)), *timed(near, 0.0, (3, 1, 2))]
    assert gv.best_variant(GPU, SHAPE, table).name == "bypass-8-full"
    assert gv.best_variant(GPU, far, table).name == "l1-4-full"


def test_another_gpu_or_type_says_nothing() -> None:
    other = [*timed(SHAPE, 0.0, (3, 1, 2), gpu="NVIDIA H200")]
    assert gv.best_variant(GPU, SHAPE, other) == gv.ASSUMED
    assert gv.best_variant("NVIDIA H200", replace(SHAPE, id_bytes=4), other) == gv.ASSUMED
    assert gv.best_variant("NVIDIA H200", replace(SHAPE, row_type="fp16"), other) == gv.ASSUMED


def test_a_variant_that_was_not_timed_at_every_skew_is_not_taken() -> None:
    table = [*timed(SHAPE, 0.0, (10, 9, 12)), *timed(SHAPE, 1.15, (5, 10, 4))[:2]]
    assert gv.best_variant(GPU, SHAPE, table).name == "l1-4-full"
    one_each = [timed(SHAPE, 0.0, (10, 9, 12))[0], timed(SHAPE, 1.15, (5, 10, 4))[1]]
    assert gv.best_variant(GPU, SHAPE, one_each) == gv.ASSUMED


def test_a_table_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFMODEL_HOME", str(tmp_path))
    assert gv.best_variant(GPU, SHAPE, gv.known_table()) == gv.ASSUMED  # none is shipped for it yet
    path = tmp_path / gv.TABLE_NAME
    for times_us, best in (((3, 1, 2), "bypass-8-full"), ((3, 2, 1), "l1-8-half")):
        gv.write_table(path, timed(SHAPE, 0.0, times_us))
        assert list(gv.known_table()) == timed(SHAPE, 0.0, times_us)
        assert gv.best_variant(GPU, SHAPE, gv.known_table()).name == best


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("l1-4-full", "l2-4-full", r"line 2.*'l2-4-full' is unknown; known: l1-4-full"),
        (",128,", ",-128,", r"line 2.*row_bytes"),
        ("time_s", "time", r"line 2.*time_s"),
        ("32768,16.0", "32768", r"line 2: 9 fields under 10 columns"),
    ],
)
def test_a_line_that_is_wrong_is_named(old: str, new: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    gv.write_table(path, timed(SHAPE, 0.0, (3, 1, 2)))
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(BadInputError, match=says):
        gv.read_table(path)


@pytest.mark.parametrize(
    ("name", "shape", "blocks", "shared"),
    [
        ("l1-4-full", RowAccess(8, 1, 16), 4, 4 * (20000 + 1024)),
        ("bypass-4-half", RowAccess(8, 1, 16), 2, 2 * (20000 + 1024)),
        ("l1-8-full", RowAccess(32, 2, 16), 3, 3 * (20000 + 1024)),
    ],
)
def test_blocks_and_what_they_take(name: str, shape: RowAccess, blocks: int, shared: int) -> None:
    variant = gv.BY_NAME[name]
    assert variant.blocks(shape, 4) == blocks
    assert variant.shared_bytes(20000, shape, 4) == shared
