"""``perfmodel sweep --by``: what is asked of machines side by side."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.answer.sweep import CRITERIA, Columns
from perfmodel.cli.options import apart
from perfmodel.errors import BadInputError
from perfmodel.question.passes import SweepOptions
from perfmodel.schema.files import unknown_name
from perfmodel.units import parse_price

_MOST_PRICE = 1e6


def read_criterion(options: SweepOptions, columns: Columns, many: int) -> str:
    """The criterion of ``--by``; prices alone ask for the cost. many  table sets, types and shardings

    Limits: another word, more than one question -> BadInputError
    """
    by = options.by or "cost"
    if by not in CRITERIA:
        raise unknown_name("--by", by, CRITERIA)
    apart("--by", by, "leave one of them out.", grid=options.grid)
    if by == "time" and options.max_latency is not None:
        why = "each machine has another batch within it"
        raise BadInputError(
            f"--by time and --set max_latency cannot be combined: {why}.", "give --by throughput."
        )
    apart("--set global_batch", options.global_batch, "leave one of them out.", batch=options.batch)
    free = [name.replace("_", " ") for name in columns if name != "gpus" and len(set(columns[name])) > 1]
    if many > 1 or free:
        which = ", ".join(free) or "tables, types or shardings"
        raise BadInputError(f"--by compares machines for one question: several {which}.", "give one value.")
    return by


def read_prices(options: SweepOptions, by: str, machines: Sequence[str]) -> tuple[dict[str, float], str]:
    """(price of a GPU for an hour by machine, their currency).

    Limits: another machine, one twice, two currencies, costs without a price -> BadInputError
    """
    prices: dict[str, float] = {}
    currencies: set[str] = set()
    for text in options.price or []:
        name, _, price = (part.strip() for part in text.partition("="))
        amount, currency = parse_price(price, f"--price {name}")
        if name not in machines or name in prices:
            why = "is given twice" if name in prices else "is not one of --machine"
            step = f"one price for each of {', '.join(machines)}."
            raise BadInputError(f"--price {text}: {name} {why}.", step)
        if amount > _MOST_PRICE:
            raise BadInputError(f"--price {text} is too high.", f"at most {_MOST_PRICE:.0f} an hour.")
        prices[name] = amount
        currencies.add(currency)
    if len(currencies) > 1:
        raise BadInputError(f"--price in {' and '.join(sorted(currencies))}.", "give all in one currency.")
    if by == "cost" and (missing := next((x for x in machines if x not in prices), None)):
        raise BadInputError(f"--by cost: no price of {missing}.", f"give --price {missing}=2.5USD/GPU/h.")
    return prices, "".join(currencies)
