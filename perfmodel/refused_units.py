"""Spellings of numbers that are refused: both readings, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.errors import BadInputError

POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_WORDS = {"": "", "k": "kilo", "M": "mega", "G": "giga", "T": "tera", "P": "peta", "E": "exa"}
_BINARY_WORDS = {"k": "kibi", "M": "mebi", "G": "gibi", "T": "tebi", "P": "pebi", "E": "exbi"}
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class TypedNumber:
    """A number with a unit as the user typed it.

    number, unit  its value, and the letters after it
    digits        the number as it was typed
    subject       how messages name it, for example ``--rate 10Tb``
    """

    number: float
    unit: str
    digits: str
    subject: str


def prefix_of(letter: str) -> str:
    """The SI prefix (k, M, G, T, P or E) for a letter that was typed as a capital or not."""
    return "k" if letter in "kK" and letter else letter.upper()


def _power_text(base: int, exponent: int) -> str:
    return f"{base}{str(exponent).translate(_SUPERSCRIPT)}" if exponent else "1"


def bits_or_bytes(
    text: TypedNumber, prefix: str, binary: bool, *, rate: bool, wanted_rate: bool
) -> BadInputError:
    """The error for a unit that may mean bits or bytes (10Tb, 400Gbps): both readings, and what to write.

    prefix       k, M, G … of the unit
    binary       whether the unit has an i, as in Tib
    rate         whether the unit is per second
    wanted_rate  whether a rate is expected
    """
    word = _BINARY_WORDS[prefix] if binary and prefix else _WORDS[prefix]
    readings = f"{word}bits or {word}bytes" + (" per second" if rate else "") + "?"
    digits, power = text.digits, POWERS[prefix]
    upper = prefix.upper()
    if wanted_rate:
        value = f"{digits}·{_power_text(10, 3 * power)}" if power else digits
        step = f"write {digits}{prefix}B/s ({value} bytes/s), {digits}{prefix}bit/s (an eighth of that)"
        step += f" or {digits}{upper}iB/s." if power else "."
    elif power:
        step = f"write {digits}{prefix}B ({digits}·{_power_text(10, 3 * power)} bytes), "
        step += f"{digits}{upper}iB ({digits}·{_power_text(2, 10 * power)}) or {digits}{prefix}bit."
    else:
        step = f"write {digits}B or {digits}bit."
    note = " and a rate, where a size is expected" if rate and not wanted_rate else ""
    return BadInputError(f"{text.subject} is ambiguous{note}: {readings}", step)


def unknown_unit(text: TypedNumber, kind: str, example: str) -> BadInputError:
    """The error for a unit that does not fit what is expected.

    kind     the expected kind of value: ``a size in bytes``;  example  a text that is valid
    """
    return BadInputError(f"{text.subject}: {text.unit!r} is not a unit of {kind}.", f"for example {example}.")


def bare_prefix(text: TypedNumber, prefix: str, *, rate: bool) -> BadInputError:
    """The error for a size or a rate such as ``10T``, which may mean 10·10¹² or 10·2⁴⁰ bytes."""
    power, upper, per = POWERS[prefix], prefix.upper(), "/s" if rate else ""
    if not power:
        return BadInputError(f"{text.subject} has no unit.", f"write {text.digits}B/s or {text.digits}GB/s.")
    decimal, binary = _power_text(10, 3 * power), _power_text(2, 10 * power)
    return BadInputError(
        f"{text.subject} is ambiguous: {decimal} or {binary} bytes{per}?",
        f"write {text.digits}{prefix}B{per} ({text.digits}·{decimal} bytes) or {text.digits}{upper}iB{per}.",
    )


def lettered(text: TypedNumber, kind: str, example: str) -> BadInputError:
    """The error for a number with a unit where none is expected; it gives both readings of ``4k``.

    kind     the expected kind of value: ``a whole number``;  example  a text that is valid
    """
    power = POWERS.get(prefix_of(text.unit), 0) if len(text.unit) == 1 else 0
    if not power:
        return BadInputError(f"{text.subject} is not {kind}.", f"write {kind}, for example {example}.")
    decimal, binary = (f"{text.number * base**power:.15g}" for base in (1000, 1024))
    return BadInputError(
        f"{text.subject} is ambiguous: {decimal} or {binary}?", f"write {decimal} or {binary}."
    )
