"""YAML files of plain data, within the limits of ``schema.gate``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.schema.files import expected, first_line, key_twice
from perfmodel.schema.gate import (
    MOST_DIGITS,
    MOST_LEVELS,
    MOST_VALUES,
    many_values,
    not_valid,
    raised,
    read_text,
    require_bounded,
)

if TYPE_CHECKING:
    import yaml


def read_yaml(path: Path, what: str) -> Any:
    """A YAML document of plain data. Tags and aliases, which can make a small file large, are refused."""
    import yaml

    text = read_text(path, what)
    try:
        document = _of_yaml(text, f"{what} {path}")
        require_bounded(document)
    except (yaml.YAMLError, ValueError) as error:
        raise not_valid(f"{what} {path}", "YAML", error, expected(what)) from None
    return document


def _of_yaml(text: str, where: str) -> Any:
    """The document, built event by event: each open level is a list, or a mapping with its next key."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    read = yaml.SafeLoader("")  # resolves plain words
    open_ones: list[tuple[Any, list[Any]]] = []
    documents: list[Any] = []
    for number, event in enumerate(yaml.parse(text, Loader=loader)):
        if number > MOST_VALUES and number > raised(MOST_VALUES):
            raise many_values()
        line = f"line {event.start_mark.line + 1}" if event.start_mark else "at the end"
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"{line}: aliases (*name) are not read")
        if isinstance(event, yaml.CollectionEndEvent):
            open_ones.pop()
            continue
        if not isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            continue
        if (tag := event.tag) not in (None, "!"):
            raise ValueError(f"{line}: tags ({first_line(str(tag))}) are not read")
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = _plain_word(read, event, line)
        else:
            value = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        if not open_ones:
            documents.append(value)
        elif isinstance(holder := open_ones[-1][0], list):
            holder.append(value)
        elif keys := open_ones[-1][1]:
            holder[keys.pop()] = value
        else:
            if not isinstance(value, str | int | float | None):
                raise ValueError(f"{line}: a list or a mapping is no name of a field")
            if value in holder:
                raise key_twice(value, f"{where}, {line}")
            keys.append(value)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(open_ones) >= MOST_LEVELS:
                raise ValueError(f"nested too deeply: more than {MOST_LEVELS} levels")
            open_ones.append((value, []))
    if len(documents) > 1:
        raise ValueError("several documents in one file")
    return documents[0] if documents else None


_OLD_NUMBER = re.compile(r"[-+]?0[0-9_]+$|.*:")  # 010 is 8 in YAML 1.1, and 1:30:00 is 5400


def _plain_word(read: yaml.SafeLoader, event: yaml.ScalarEvent, line: str) -> Any:
    """Value of a scalar: text if quoted, else a number, true, false, null or text.

    Limits: words that YAML 1.1 reads as octal or sexagesimal, numbers of many digits -> ValueError
    """
    import yaml

    if not event.implicit[0]:
        return event.value
    kind: str = read.resolve(  # type: ignore[no-untyped-call]
        yaml.ScalarNode, event.value, (True, False)
    ).rsplit(":", 1)[-1]
    if kind not in ("int", "float", "bool", "null"):
        return event.value
    if kind in ("int", "float"):
        if _OLD_NUMBER.match(event.value):
            raise ValueError(
                f"{line}: {first_line(event.value)} is octal or to the base 60 in YAML 1.1; "
                "write a decimal number"
            )
        if len(event.value) > MOST_DIGITS:
            raise ValueError(f"{line}: a number of more than {MOST_DIGITS} digits")
    node = yaml.ScalarNode(f"tag:yaml.org,2002:{kind}", event.value)
    return getattr(read, f"construct_yaml_{kind}")(node)
