"""A question that the page asks: the texts of its controls, from the page's address or its script."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel

from perfmodel.errors import BadInputError
from perfmodel.explore.controls import OPTIONS, Control
from perfmodel.question.spec import CommandOptions
from perfmodel.schema.files import shown, unknown_name
from perfmodel.schema.machine import KEYS
from perfmodel.schema.table_files import read_tables
from perfmodel.schema.workload import TableSet

MOST_BYTES, MOST_ROWS = 1_000_000, 10_000
"""Most bytes and most rows of a file that is dropped on the page."""
LONGEST = 200
FILE = "file:"
"""Prefix of the name of a dropped file, in a control that names a set of tables."""
_OF_EQUAL = ("table_size", "tables", "pooling", "dim", "dtype")
_READ = (".csv", ".json")


class _Held(PurePosixPath):
    """A file in memory in the form of a path, so that functions that read files can open it."""

    raw: bytes

    @staticmethod
    def of(name: str, raw: bytes) -> Path:
        found = _Held(name)
        found.raw = raw
        return cast("Path", found)

    def open(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self.raw)

    def is_dir(self) -> bool:
        return False


@dataclass(frozen=True)
class Dropped:
    """A file that was dropped on the page, as the browser sends it: ``data:text/csv;base64,…``."""

    name: str
    contents: str

    @staticmethod
    def of(data: Mapping[str, str] | None) -> Dropped | None:
        """The file in the page's data. Limits: no data -> None"""
        return Dropped(str(data["name"]), str(data["contents"])) if data else None

    @property
    def raw(self) -> bytes:
        """The bytes of the file. Limits: too many, or not base64 -> BadInputError"""
        try:
            raw = base64.b64decode(self.contents.partition(",")[2], validate=True)
        except binascii.Error:
            raise BadInputError(f"{shown(self.name)} did not arrive whole.", "drop it again.") from None
        if len(raw) > MOST_BYTES:
            raise BadInputError(
                f"{shown(self.name)} is too large.",
                f"at most {MOST_BYTES // 1_000_000} MB can be dropped; perfmodel project --model reads more.",
            )
        return raw

    def tables(self) -> TableSet:
        """The tables in the file. Limits: as ``read_tables``;  no table file, too many -> BadInputError"""
        return _read(self)


@lru_cache(maxsize=8)
def _read(file: Dropped) -> TableSet:
    name = PurePosixPath(file.name.replace("\\", "/")).name
    if not name.lower().endswith(_READ) or len(name) > LONGEST or not name.isprintable():
        raise BadInputError(
            f"{shown(file.name)} cannot be read here.", f"drop a file of tables: {' or '.join(_READ)}."
        )
    found = read_tables(_Held.of(name, file.raw))
    if len(found.tables) > MOST_ROWS:
        raise BadInputError(
            f"{shown(name)} has {len(found.tables)} tables.",
            f"at most {MOST_ROWS} can be dropped; perfmodel project --model reads more.",
        )
    return found


@dataclass(frozen=True)
class Said:
    """A question: pairs (name of a control, its text) in the order of the controls, without empty texts.

    file  the file that was dropped, if the question is about its tables
    """

    said: tuple[tuple[str, str], ...]
    file: Dropped | None = None

    @staticmethod
    def of(texts: Mapping[str, Any], known: Mapping[str, Control], file: Dropped | None = None) -> Said:
        """The question of these texts, by name; texts that have no effect beside others are left out.

        known  the controls of the page;  file  a file that was dropped
        Limits: a name that is no control, a text that is not in its list of choices -> BadInputError
        """
        for name, text in texts.items():
            if name not in known:
                raise unknown_name("control of this page", name, known)
            if len(str(text or "")) > LONGEST:
                raise BadInputError(f"{known[name].label} is too long.", f"at most {LONGEST} characters.")
            own = name == "model" and str(text).startswith(FILE)
            if text and known[name].only and text not in known[name].words and not own:
                raise unknown_name(known[name].label, str(text), list(filter(None, known[name].words)))
        said = {name: str(texts[name]).strip() for name in known if texts.get(name)}
        for name in _OF_EQUAL if said.get("model") else ():
            said.pop(name, None)
        if said.get("global_batch"):
            said.pop("batch", None)
        dropped = said.get("model", "").startswith(FILE)
        if dropped and (file is None or FILE + file.name != said["model"]):
            raise BadInputError(
                f"this link asks about the tables of {shown(said['model'].removeprefix(FILE))}.",
                "a file stays with who dropped it: drop it here too.",
            )
        return Said(tuple((name, text) for name, text in said.items() if text), file if dropped else None)

    @property
    def search(self) -> str:
        """The part of the page's address that asks this question: ``?gpus=8&dim=64``."""
        return f"?{urlencode(self.said)}" if self.said else ""

    def typed(self, options: type[CommandOptions]) -> dict[str, Any]:
        """Values of a command's options by name, as its command line would read them.

        options  the options of that command.  Limits: as for the command line
        """
        said, found = dict(self.said), {}
        for each in options.declared():
            text = said.get(each.name) if each.name in OPTIONS else None
            found[each.name] = each.default if text is None else each.checked(text)
        found["settings"] = [f"{name}={text}" for name, text in self.said if name in KEYS] or None
        return found | ({"model": self.file.tables()} if self.file else {})

    def words(self, options: type[CommandOptions], model: str = "") -> list[str]:
        """Words of a command line. model  the name of the dropped file in it; "": the file's own"""
        flags, found = {each.name: each.flag for each in options.declared()}, []
        for name, text in self.said:
            if name in KEYS:
                found += [flags["settings"], f"{name}={text}"]
            elif name in flags:
                text = (model or text.removeprefix(FILE)) if self.file and name == "model" else text
                found += [flags[name], text]
        return found


class Posted(BaseModel):
    """What the page's script sends.

    said    texts of the controls by name;  file  a file that was dropped
    visit   name of the open page, one per tab;  pinned  address of the pinned question
    name    name of the figure that it asks for, if it asks for a figure
    """

    said: dict[str, str | None]
    file: Dropped | None
    visit: str
    pinned: str | None
    name: str = ""

    def asked(self, known: Mapping[str, Control]) -> Said:
        """The question that was sent; ``known`` are the page's controls. Limits: as ``Said.of``"""
        return Said.of(self.said, known, self.file)


class _Part(BaseModel):
    id: str | dict[str, Any]
    property: str


class Called(BaseModel):
    """The parts of a request from Dash's own script that Dash relies on; others are not checked."""

    output: str
    outputs: dict[str, Any] | list[dict[str, Any]]
    inputs: list[_Part | list[_Part]]
    state: list[_Part | list[_Part]] = []
    changedPropIds: list[str]  # noqa: N815  Dash's word


def texts_of(search: str) -> dict[str, str]:
    """The texts of the controls by name, from ``search``, the part of an address from ``?`` on."""
    return dict(parse_qsl(search.lstrip("?#"), max_num_fields=64))
