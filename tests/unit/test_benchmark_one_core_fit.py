"""``benchmarks/one_core_fit.py``: samples of a chip that is known give back its values."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from calibrate.cuda.one_core_plan import WAYS, TableShape
from perfmodel.schema.chip import Chip, load_chip, read_chip

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SHAPES = [TableShape(300, 32, 4, 3.0), TableShape(40, 64, 4, 1.0), TableShape(5000, 16, 4, 2.0)]
CORES, CACHE = 6, 62_914_560
TRUE = {"row_latency_s": 561e-9, "cache_bytes_per_s": 4.4e12, "channels": 48.0}
"""The first is 1.5 times the shipped value, the second 0.8, the third half."""


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("one_core", "one_core_fit"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import one_core_fit

    return one_core_fit


def samples_of(fit: ModuleType, chip: Chip) -> list[str]:
    """Lines of what such a chip would take."""
    one_core, room, lines = sys.modules["one_core"], int(chip.value("local_bytes")) - 128, []
    for batch in (64, 512):
        for which, law in one_core.IDS.items():
            predicted = one_core.Predicted(chip, SHAPES, batch, room, law)
            for way in WAYS:
                plan = one_core.one_way(SHAPES, way, batch, CORES, room, predicted)
                items = one_core.items_of(plan)
                seconds = predicted.items(items, in_order=True).seconds
                sample = fit.Sample(
                    gpu="a GPU",
                    cores=CORES,
                    cache_bytes=CACHE,
                    local_bytes=room,
                    tables=[(one.rows, one.dim, one.pooling) for one in SHAPES],
                    batch=batch,
                    ids=which,
                    plan=way,
                    items=items,
                    time_s=seconds,
                )
                lines.append(sample.model_dump_json())
    return lines


def run(fit: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["one_core_fit.py", *words])
    return int(fit.main())


def test_known_values_come_back(
    fit: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reported = {"cores": CORES, "cache_bytes": CACHE}
    truth = load_chip("h200-sxm").with_overrides({**reported, **TRUE})
    samples, out = tmp_path / "seen.jsonl", tmp_path / "mine.toml"
    samples.write_text("\n".join(samples_of(fit, truth)) + "\n", encoding="utf-8")
    assert run(fit, monkeypatch, str(samples), "--out", str(out)) == 0
    said = capsys.readouterr().out
    made = read_chip(out)
    assert made.name == "mine" and made.value("cache_bytes") == CACHE and made.cores == CORES
    assert made.value("row_latency_s") == pytest.approx(TRUE["row_latency_s"], rel=0.05)
    assert str(made.quantity("row_latency_s").evidence) == "measured"
    assert "a GPU" in made.quantity("row_latency_s").source
    assert made.quantity("cache_bytes").why == "the device reports it"
    assert "off after  median 0." in said, said
    shipped = load_chip("h200-sxm")
    untold = [line.split()[0] for line in said.splitlines() if "not told" in line]
    assert all(made.quantity(key) == shipped.quantity(key) for key in untold)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda lines: lines[:3], "3 samples of 1 GPUs"),
        (lambda lines: [*lines, lines[0].replace("a GPU", "another")], "17 samples of 2 GPUs"),
        (lambda lines: [*lines, lines[0].replace("a GPU", "a GPU (rehearsal)")], "its times are made up"),
        (lambda lines: [lines[0], lines[1].replace("uniform", "zipf"), *lines[2:]], "line 2"),
    ],
)
def test_samples_that_cannot_be_used_are_refused(
    fit: ModuleType,
    spoil: object,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    samples = tmp_path / "seen.jsonl"
    chip = load_chip("h200-sxm").with_overrides({"cores": CORES})
    samples.write_text("\n".join(spoil(samples_of(fit, chip))), encoding="utf-8")  # type: ignore[operator]
    assert run(fit, monkeypatch, str(samples), "--out", str(tmp_path / "mine.toml")) == 2
    assert says in capsys.readouterr().err
