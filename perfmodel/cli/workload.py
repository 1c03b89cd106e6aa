"""Reads the options about tables, memory and sharding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.answer.inputs import equal_share
from perfmodel.engine.basis import LocalMemory
from perfmodel.engine.schemes import ALL, ROW_WISE, way_named
from perfmodel.errors import BadInputError
from perfmodel.question.groups import EqualTableOptions
from perfmodel.units import parse_bytes, parse_count, parse_rate, parse_ratio, parse_time


def workload_values(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Tables and their look-ups as keywords of ``perfmodel.project``. typed  the options by name"""
    from perfmodel.schema.workload import id_dtype_bytes

    model = typed.get("model")
    if model is not None:
        check_model(typed)
    asked = EqualTableOptions.values(typed)
    numbers = {name: value for name, value in asked.items() if value is not None and name != "model"}
    return {"tables": model, "id_bytes": id_dtype_bytes(typed["id_dtype"]), **numbers}


def share_of(typed: Mapping[str, Any], gpus: int) -> int:
    """How many samples of ``--global-batch`` each GPU gets. typed  the options by name

    Limits: as ``equal_share``; ``--batch`` too -> BadInputError
    """
    if typed.get("batch") is not None:
        raise BadInputError("--batch and --global-batch cannot be combined.", "leave one of them out.")
    return equal_share(parse_count(typed["global_batch"], "--global-batch"), gpus)


def check_model(typed: Mapping[str, object]) -> None:
    """Raise BadInputError if options of equal tables (None: not typed) are typed together with --model."""
    if not typed.get("model"):
        return
    clash = [f"--{name.replace('_', '-')}" for name in _OF_A_MODEL if typed.get(name) is not None]
    if clash:
        raise BadInputError(f"--model and {clash[0]} cannot be combined.", "a model brings its own tables.")


_OF_A_MODEL = ("table_size", "tables", "pooling", "dim", "dtype", "grid")


def reserve_of(text: str) -> float:
    """The number in the text of ``--reserve``, ``15%`` or ``0.15``. Limits: 1 or more -> BadInputError"""
    value = parse_ratio(text, "--reserve", allow_zero=True)
    if value >= 1:
        raise BadInputError(f"--reserve {text} leaves no memory.", "less than 1, for example 0.15 or 15%.")
    return value


def local_memory_of(text: str | None) -> LocalMemory | None:
    """The memory in the text of ``--local-memory``, ``10TB@3TB/s``; None: not typed."""
    if text is None:
        return None
    size, at, rate = text.partition("@")
    if not at:
        raise BadInputError(
            f"--local-memory {text} is not SIZE@RATE.", "for example --local-memory 10TB@3TB/s"
        )
    return LocalMemory(parse_bytes(size, "--local-memory"), parse_rate(rate, "--local-memory"))


def remote_memory_of(text: str | None) -> LocalMemory | None:
    """The memory in the text of ``--remote-memory``.

    It is like ``10TB@3TB/s,shared:16,latency:3us``; None: not typed
    Limits: no latency, an unknown or repeated word, a fractional number of GPUs -> BadInputError
    """
    if text is None:
        return None
    example, name = "for example --remote-memory 10TB@3TB/s,shared:16,latency:3us", "--remote-memory"
    first, *words = [word.strip() for word in text.split(",")]
    size, at, rate = first.partition("@")
    if not at:
        raise BadInputError(f"{name} {text} does not begin with SIZE@RATE.", example)
    given: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition(":")
        if key not in ("shared", "latency") or not value or key in given:
            raise BadInputError(f"{name} {text}: {word!r} is not shared:GPUS or latency:TIME, once.", example)
        given[key] = value
    if "latency" not in given:
        why = "over a network a read takes microseconds; --local-memory has none"
        raise BadInputError(f"{name} {text} does not say its latency.", f"{example}: {why}.")
    sharers = parse_count(given.get("shared", "1"), f"{name}: shared")
    latency = parse_time(given["latency"], name)
    return LocalMemory(parse_bytes(size, name), parse_rate(rate, name), latency, sharers)


def checked_sharding(
    name: str | None,
    local_memory: str | None = None,
    remote_memory: str | None = None,
    more: str | None = None,
) -> str | None:
    """The sharding in ``--sharding``; None: row-wise, or the option was not typed.

    local_memory, remote_memory  other options, which imply that nothing is sharded
    more  a name that is accepted besides ``schemes.WAYS``; None: ``all``
    Limits: unknown names, and options that imply no sharding -> BadInputError
    """
    if name is None:
        return None
    other = more or ALL
    way = other if name.strip().lower() == other else way_named(name, other)
    memory = {"--local-memory": local_memory, "--remote-memory": remote_memory}
    clash = next((option for option, value in memory.items() if value is not None), "")
    if clash and way != ROW_WISE:
        raise BadInputError(
            f"--sharding {name} and {clash} cannot be combined.", "one memory shards nothing: leave one out."
        )
    return None if way == ROW_WISE else way
