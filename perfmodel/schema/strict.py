"""What the parts of all files share: a field that is not known is an error, and no value changes later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from perfmodel.schema.files import invalid_fields
from perfmodel.schema.gate import read_toml

_Kind = TypeVar("_Kind", bound=BaseModel)


class Strict(BaseModel):
    """A part of a file, without other fields than its own; frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Exact(Strict):
    """The same; a value of another type is not converted, as ``"8"`` to 8."""

    model_config = ConfigDict(strict=True)


def validated(
    kind: type[_Kind],
    document: object,
    what: str,
    where: str,
    lines: Sequence[int] = (),
    strict: bool | None = None,
) -> _Kind:
    """A document as an instance of ``kind``.

    what, where  "machine file" and its path, for the message;  lines  as in ``invalid_fields``
    strict  whether no value is converted; None: as ``kind`` says
    Limits: invalid fields -> BadInputError
    """
    try:
        return kind.model_validate(document, strict=strict)
    except ValidationError as error:
        raise invalid_fields(error, what, where, lines) from None


def read_as(kind: type[_Kind], path: Path, what: str) -> _Kind:
    """A TOML file as an instance of ``kind``. Limits: as ``read_toml`` and ``validated``"""
    return validated(kind, read_toml(path, what), what, str(path))
