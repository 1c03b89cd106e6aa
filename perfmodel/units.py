"""Parse and format sizes, rates, times and counts: the only place that does either.

Inside the program everything is SI (bytes, bytes per second, seconds). ``10TB`` is 10·10¹² bytes, ``10TiB``
10·2⁴⁰; a spelling that people read in two ways (``10Tb``, ``400Gbps``, ``1M``) is refused with both.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from perfmodel.errors import BadInputError

BITS_PER_BYTE = 8
_TIME_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
}  # fmt: skip
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_WORDS = ("", "kilo", "mega", "giga", "tera", "peta", "exa")
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_NUMBER = re.compile(
    r"\s*([+-]?(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([^\s\d]*|:1)\s*"
)
_AMOUNT = re.compile(r"([kKmMgGtTpPeE]?)(i?)(B|b|bit|bits|byte|bytes|Byte|Bytes|)(ps|/s|)")
_PRICE_UNIT = re.compile(r"([A-Z]{3})/GPU/h")
_FLOPS_UNITS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
_GROUP_GAP = re.compile(r"(?<=\d) (?=\d{3}(?!\d))")
_LONGEST_TEXT = 60
_LONG_COUNT = 1e15

QUANTITY_UNITS = ("byte", "byte/s", "s", "count", "ratio", "fraction")
"""Units that a machine value may have."""


class TypedNumber(NamedTuple):
    """A number with a unit as the user typed it.

    number, unit, digits  its value, the letters after it, and the number as it was typed
    subject  how messages name it, for example ``--rate 10Tb``
    """

    number: float
    unit: str
    digits: str
    subject: str


def _split(text: str, name: str, kind: str, example: str, *, zero: bool = False) -> TypedNumber:
    """Split ``text`` into number and unit; a number that is negative or infinite is an error.

    name     name of the value in messages
    kind     the expected kind of value: ``a size in bytes``;  example  a text that is valid
    zero     whether 0 is allowed
    """
    shown = text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"
    subject = f"{name} {''.join(c if c.isprintable() else '?' for c in shown)}".strip()
    step = f"write {kind}, for example {example}."
    if not text.strip():
        raise BadInputError(f"{name or kind} is empty.".strip(), step)
    match = _NUMBER.fullmatch(_GROUP_GAP.sub("", text)) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise BadInputError(f"{subject} is not {kind}.", step)
    digits, unit = match.groups()
    number = float(digits)
    if not math.isfinite(number):
        raise BadInputError(f"{subject} is too large to be a number.", step)
    if number < 0 or (number == 0 and not zero):
        allowed = "0 or more" if zero else "more than 0"
        step = f"{kind} is {allowed}, for example {example}."
        raise BadInputError(f"{subject} is {'negative' if number < 0 else 'zero'}.", step, allowed=allowed)
    return TypedNumber(number, unit, digits, subject)


def _read_amount(text: TypedNumber, *, rate: bool, kind: str, example: str) -> float:
    """Convert a typed size into bytes or, with ``rate``, a typed rate into bytes per second.

    kind     the expected kind of value: ``a size in bytes``;  example  a text that is valid
    Limits: what people read in two ways (10Tb, 400Gbps, 10T) -> BadInputError with both readings
    """
    match = _AMOUNT.fullmatch(text.unit)
    letter, mark, base, per = match.groups() if match else ("", "i", "", "")
    power = "KMGTPE".index(letter.upper()) + 1 if letter else 0
    step = f"for example {example}."
    if mark and not power:
        raise BadInputError(f"{text.subject}: {text.unit!r} is not a unit of {kind}.", step)
    if base == "b" or per == "ps" or letter in ("m", "g", "t", "p", "e"):
        word = f"{_WORDS[power][:2]}bi" if mark else _WORDS[power]
        readings = f"{word}bits or {word}bytes" + (" per second" if per else "")
        raise BadInputError(f"{text.subject} is ambiguous: {readings}?", _spell_out(text, power, rate))
    if bool(per) != rate and (per or base):
        typed = "a rate" if per else "a size"
        raise BadInputError(f"{text.subject} is {typed}; expected {kind}.", step)
    if not base and (power or rate):
        powers = f"{_write_power(10, 3 * power)} or {_write_power(2, 10 * power)} bytes{'/s' if rate else ''}"
        problem = f"is ambiguous: {powers}?" if power else "has no unit."
        raise BadInputError(f"{text.subject} {problem}", _spell_out(text, power or 3, rate))
    scale = 2.0 ** (10 * power) if mark else 10.0 ** (3 * power)
    value = text.number * scale / (BITS_PER_BYTE if base.startswith("bit") else 1)
    if not math.isfinite(value):
        raise BadInputError(f"{text.subject} is too large to be {kind}.", step)
    return value


def _write_power(base: int, exponent: int) -> str:
    """A power in words: ``10¹²`` of (10, 12); ``1`` of exponent 0."""
    return f"{base}{str(exponent).translate(_SUPERSCRIPT)}" if exponent else "1"


def _spell_out(text: TypedNumber, power: int, rate: bool) -> str:
    """Advice: the number in bytes, in binary units and in bits, which nobody reads in two ways."""
    digits = text.digits
    prefix = _PREFIXES[power]
    per = "/s" if rate else ""
    if not power:
        return f"write {digits}B{per} or {digits}bit{per}."
    decimal, binary = _write_power(10, 3 * power), _write_power(2, 10 * power)
    return (
        f"write {digits}{prefix}B{per} ({digits}·{decimal} bytes{per}), {digits}{prefix.upper()}iB{per} "
        f"({digits}·{binary}) or {digits}{prefix}bit{per}."
    )


def _has_unit(text: TypedNumber, kind: str, example: str) -> BadInputError:
    """The error for a number with a unit where none is expected; it gives both readings of ``4k``."""
    letter = text.unit.upper() if len(text.unit) == 1 else ""
    if not letter or letter not in "KMGTPE":
        return BadInputError(f"{text.subject} is not {kind}.", f"write {kind}, for example {example}.")
    power = "KMGTPE".index(letter) + 1
    decimal = f"{text.number * 1000**power:.15g}"
    binary = f"{text.number * 1024**power:.15g}"
    readings = f"{decimal} or {binary}"
    return BadInputError(f"{text.subject} is ambiguous: {readings}?", f"write {readings}.")


def parse_bytes(text: str, name: str = "", *, allow_zero: bool = False) -> float:
    """Bytes of ``10TB``, ``10TiB``, ``64 KiB``, ``10Tbit`` or a bare number of bytes.

    name  name of the value in messages, for example ``--table-size``
    Limits: 1TB -> 1e12; 1TiB -> 2**40; 8bit -> 1; 10Tb, 10Tbps, 1M, negative, nan, empty -> BadInputError
    """
    kind, example = "a size in bytes", "10TB, 10TiB or 64KiB"
    parts = _split(text, name, kind, example, zero=allow_zero)
    value = _read_amount(parts, rate=False, kind=kind, example=example)
    if 0 < value < 1:
        raise BadInputError(f"{parts.subject} is less than a byte.", f"write {kind}, for example {example}.")
    return value


def parse_rate(text: str, name: str = "", *, allow_zero: bool = False) -> float:
    """Bytes per second of ``100GB/s``, ``400Gbit/s`` or ``3TiB/s``.

    Limits: 8Gbit/s -> 1e9; 400Gbps, 100GBps, 100Gb/s, 100 -> BadInputError
    """
    kind, example = "a rate", "100GB/s or 400Gbit/s"
    parts = _split(text, name, kind, example, zero=allow_zero)
    return _read_amount(parts, rate=True, kind=kind, example=example)


def parse_time(text: str, name: str = "", *, allow_zero: bool = False) -> float:
    """Seconds of ``20us``, ``20µs``, ``1.5ms``, ``2s`` or ``3min``.

    Limits: 1000us -> 1ms; a number with no unit, or with one that is no time -> BadInputError
    """
    parts = _split(text, name, "a time", "20us, 1.5ms or 2s", zero=allow_zero)
    if parts.unit not in _TIME_SECONDS:
        problem = f"{parts.unit!r} is not a unit of time" if parts.unit else "a time needs a unit"
        digits = parts.digits
        raise BadInputError(f"{parts.subject}: {problem}.", f"write {digits}us, {digits}ms or {digits}s.")
    value = parts.number * _TIME_SECONDS[parts.unit]
    if not math.isfinite(value):
        raise BadInputError(f"{parts.subject} is too long to be a time.", "for example 20us.")
    return value


def parse_count(text: str, name: str = "", *, allow_zero: bool = False) -> int:
    """A whole number: ``128``, ``1_000_000`` or ``1e6``.

    Limits: 1.5, 1k (1000 or 1024?), negative -> BadInputError; 0 -> BadInputError unless ``allow_zero``
    """
    parts = _split(text, name, "a whole number", "128 or 1_000_000", zero=allow_zero)
    if parts.unit:
        raise _has_unit(parts, "a whole number", "128 or 1_000_000")
    if not parts.number.is_integer():
        raise BadInputError(
            f"{parts.subject} is not a whole number.", f"for example {math.ceil(parts.number)}."
        )
    plain = parts.digits.replace("_", "").lstrip("+")
    return int(plain) if plain.isdigit() else int(parts.number)


def parse_ratio(text: str, name: str = "", *, allow_zero: bool = False) -> float:
    """A ratio: ``1.55``, ``62.8×``, ``62.8x``, ``2:1`` or ``85 %``.

    Limits: 85 % -> 0.85; 1.55× -> 1.55; negative, any other unit -> BadInputError
    """
    parts = _split(text, name, "a ratio", "1.55 or 85%", zero=allow_zero)
    if parts.unit == "%":
        return parts.number / 100
    if parts.unit not in ("", "×", "x", ":1"):
        raise BadInputError(f"{parts.subject}: {parts.unit!r} is not a ratio.", "write 1.55 or 85%.")
    return parts.number


def parse_number(text: str, name: str = "") -> float:
    """A number above 0 without a unit: ``32``, ``1.5`` or ``1e3``.

    Limits: 0, negative, ``85 %``, any other unit -> BadInputError
    """
    parts = _split(text, name, "a number", "1 or 32.5")
    if parts.unit:
        raise _has_unit(parts, "a number", "1 or 32.5")
    return parts.number


def parse_price(text: str, name: str = "") -> tuple[float, str]:
    """(amount, currency) of ``2.5USD/GPU/h``, the price of one GPU for an hour.

    Limits: no unit, another unit -> BadInputError
    """
    parts = _split(text, name, "a price", "2.5USD/GPU/h")
    if (match := _PRICE_UNIT.fullmatch(parts.unit)) is None:
        wrong = f"{parts.unit!r} is no price of a GPU" if parts.unit else "a price needs a unit"
        raise BadInputError(f"{parts.subject}: {wrong}.", f"write {parts.digits}USD/GPU/h.")
    return parts.number, match[1]


def parse_quantity(text: str, unit: str, name: str = "") -> float:
    """SI value of ``text`` for a machine value of ``unit`` (one of ``QUANTITY_UNITS``).

    A bare number is SI, because the value's own name says its unit (``nic_bytes_per_s=100e9``). Zero is
    allowed: "none".
    Limits: ("100GB/s", "byte/s") -> 1e11; ("20us", "s") -> 2e-5; ("100GB", "byte/s") -> BadInputError
    """
    if unit == "byte":
        return parse_bytes(text, name, allow_zero=True)
    if unit == "count":
        return float(parse_count(text, name, allow_zero=True))
    if unit in ("ratio", "fraction"):
        return parse_ratio(text, name, allow_zero=True)
    if unit not in QUANTITY_UNITS:
        step = f"one of {', '.join(QUANTITY_UNITS)}."
        raise BadInputError(f"{name} unit {unit!r} is not known.".strip(), step)
    kind, parse = ("a rate", parse_rate) if unit == "byte/s" else ("a time", parse_time)
    parts = _split(text, name, kind, "100GB/s" if unit == "byte/s" else "20us", zero=True)
    return parse(text, name, allow_zero=True) if parts.unit else parts.number


def _figures(value: float) -> str:
    """At most three significant figures; from 10 000 on in groups of digits, from 1e9 on with an exponent."""
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    rounded = round(value, 2 - exponent)
    if abs(rounded) >= 10.0 ** (exponent + 1):
        exponent += 1
    if not -7 < exponent < 9:
        return f"{value:.2e}"
    if exponent >= 4:
        return f"{rounded:,.0f}".replace(",", " ")
    return f"{rounded:.{max(0, 2 - exponent)}f}"


def _not_a_number(value: float) -> str:
    """``unknown`` for nan, ``∞`` or ``-∞`` for an infinite value; "" for a finite value."""
    if math.isnan(value):
        return "unknown"
    return {math.inf: "∞", -math.inf: "-∞"}.get(value, "")


def _scaled(value: float, units: tuple[str, ...], step: float) -> str:
    """``value`` in the first of ``units`` in which it has at most three digits before the point.

    units  from small to large, each ``step`` times the unit before it.  A whole number is printed in full.
    """
    if odd := _not_a_number(value):
        return odd if odd == "unknown" else f"{odd} {units[0]}"
    index, scaled = 0, value
    while abs(scaled) >= 999.5 and index < len(units) - 1:
        scaled /= step
        index += 1
    return f"{format_count(scaled) if float(scaled).is_integer() else _figures(scaled)} {units[index]}"


def format_bytes(size_bytes: float, *, binary: bool = True) -> str:
    """A size in KiB, MiB … or, with ``binary=False``, in kB, MB …."""
    return _scaled(size_bytes, *((_BINARY_UNITS, 1024) if binary else (_DECIMAL_UNITS, 1000)))


def format_rate(bytes_per_s: float) -> str:
    """A rate with its unit: ``50 GB/s``, ``3.35 TB/s``."""
    text = _scaled(bytes_per_s, _DECIMAL_UNITS, 1000)
    return text if text == "unknown" else f"{text}/s"


def format_per_second(per_s: float, noun: str) -> str:
    """A throughput: ``33.6 samples/s``, ``698 k samples/s``, ``1.40 G samples/s``."""
    return _scaled(per_s, tuple(f"{prefix}{noun}/s" for prefix in ("", "k ", "M ", "G ", "T ")), 1000)


def format_flops(flops: float) -> str:
    """A number of floating-point operations: ``32.1 MFLOP``. For a rate the caller adds "per second"."""
    return _scaled(flops, _FLOPS_UNITS, 1000)


def format_time(time_s: float) -> str:
    """A time with its unit: ``393 µs``, ``9.00 µs``, ``1.21 ms``, ``2.50 s``."""
    odd = _not_a_number(time_s)
    if odd:
        return odd if odd == "unknown" else f"{odd} s"
    if time_s == 0:
        return "0 s"
    unit, scale = next(((u, s) for u, s in _TIME_STEPS if abs(time_s) / s < 999.5), ("s", 1.0))
    return f"{_figures(time_s / scale)} {unit}"


_TIME_STEPS = (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0))


def format_ratio(ratio: float) -> str:
    """A ratio with its sign: ``62.8×``, ``1.00×``, ``1230×``."""
    return _not_a_number(ratio) or f"{_figures(ratio)}×"


def format_fraction(fraction: float) -> str:
    """A share in percent with one decimal: ``81.7 %``, ``100 %``, ``<0.1 %``."""
    odd = _not_a_number(fraction)
    if odd:
        return odd
    percent = 100 * fraction
    if percent == 0:
        return "0 %"
    if abs(percent) < 0.05:
        return "<0.1 %"
    return f"{percent:.0f} %" if abs(percent) >= 99.95 else f"{percent:.1f} %"


def format_count(count: float) -> str:
    """A whole number with thin groups: ``1 000 000``; from 1e15 on with an exponent: ``1.5e28``."""
    if abs(count) >= _LONG_COUNT and math.isfinite(count):
        return f"{count:.1e}".replace("e+", "e")
    return _not_a_number(count) or f"{round(count):,}".replace(",", " ")


def counted(count: int, noun: str, nouns: str = "") -> str:
    """``1 point``, ``2 points``; ``nouns``: a plural that is not noun + s (``passes``)."""
    return f"{format_count(count)} {noun if count == 1 else nouns or noun + 's'}"


def format_number(value: float) -> str:
    """A plain number with at most three significant figures."""
    return _not_a_number(value) or _figures(value)


def format_amount(value: float) -> str:
    """A number of things: three significant figures below a thousand, from there on whole: ``32 704``."""
    counted_whole = value >= 999.5 or float(value).is_integer()
    return format_count(value) if counted_whole else format_number(value)


def format_quantity(value: float, unit: str) -> str:
    """A value of a machine's datasheet with its unit. unit  one of ``QUANTITY_UNITS``"""
    if unit == "byte":
        return format_bytes(value, binary=value < 1e9)
    formats = {"byte/s": format_rate, "s": format_time, "count": format_count, "fraction": format_fraction}
    return formats.get(unit, format_number)(value)
