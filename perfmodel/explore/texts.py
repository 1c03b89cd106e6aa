"""A question that the page asks: the texts of its controls, from the page's address or its script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from perfmodel.errors import BadInputError
from perfmodel.explore.controls import OPTIONS, PRICE, Control
from perfmodel.question.spec import Declared
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import KEYS

LONGEST = 200  # characters of a text
MOST_FIELDS = 64  # of an address
_OF_EQUAL = ("table_size", "tables", "pooling", "dim", "dtype")


@dataclass(frozen=True)
class QuestionTexts:
    """A question: pairs (name of a control, its text) in the order of the controls, without empty texts."""

    pairs: tuple[tuple[str, str], ...]

    @staticmethod
    def from_texts(texts: Mapping[str, str], known: Mapping[str, Control]) -> QuestionTexts:
        """The question of these texts, by name; texts that have no effect beside others are left out.

        known  the controls of the page
        Limits: a name that is no control, a text that is not in its list of choices -> BadInputError
        """
        for name, text in texts.items():
            if name not in known:
                raise unknown_name("control of this page", name, known)
            if len(text) > LONGEST:
                raise BadInputError(f"{known[name].label} is too long.", f"at most {LONGEST} characters.")
            if text and known[name].only and text not in known[name].words:
                raise unknown_name(known[name].label, text, list(filter(None, known[name].words)))
        said = {name: text for name in known if (text := texts.get(name, "").strip())}
        for name in (*(_OF_EQUAL if "model" in said else ()), *(["batch"] if "global_batch" in said else [])):
            said.pop(name, None)
        return QuestionTexts(tuple(said.items()))

    @staticmethod
    def from_search(search: str, known: Mapping[str, Control]) -> QuestionTexts:
        """The question of an address, ``search`` its part after ``?``. Limits: as ``from_texts``"""
        try:
            texts = dict(parse_qsl(search, max_num_fields=MOST_FIELDS))
        except ValueError:
            raise BadInputError(f"the address has more than {MOST_FIELDS} fields.", "shorten it.") from None
        return QuestionTexts.from_texts(texts, known)

    @property
    def search(self) -> str:
        """The part of the page's address after ``?`` that asks this question: ``gpus=8&dim=64``."""
        return urlencode(self.pairs)

    def to_values(self) -> dict[str, Any]:
        """Values of the options of ``perfmodel project`` by name, as its command line would read them."""
        texts = dict(self.pairs)
        values = {
            name: option.default if name not in texts else option.check(texts[name])
            for name, option in OPTIONS.items()
        }
        return values | {"settings": [f"{name}={text}" for name, text in self.pairs if name in KEYS] or None}

    def to_words(self, command: str = "project", options: Mapping[str, Declared] = OPTIONS) -> list[str]:
        """Words of the command line that gives the same answer. options  of the command"""
        words = ["perfmodel", command]
        for name, text in self.pairs:
            if name != PRICE:
                words += ["--set", f"{name}={text}"] if name in KEYS else options[name].to_words(text)
        return words
