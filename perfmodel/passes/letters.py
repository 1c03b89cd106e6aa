"""The letters of the equations: meaning, unit, and the key of the value."""

from __future__ import annotations

from typing import NamedTuple


class Letter(NamedTuple):
    """Meaning and unit of a letter of an equation.

    key  names the constant behind the letter; "" if the letter is given by the question or derived
    """

    meaning: str
    unit: str = "1"
    key: str = ""


LETTERS: dict[str, Letter] = {
    "S": Letter("bytes of one GPU in this step", "B"),
    "G": Letter("GPUs"),
    "G_x": Letter("ranks of this exchange"),
    "g": Letter("ranks of one domain"),
    "N": Letter("domains"),
    "B": Letter("samples of one GPU"),
    "T": Letter("tables"),
    "L": Letter("rows summed per bag"),
    "E": Letter("rows of a table"),
    "D": Letter("elements of a row"),
    "U": Letter("distinct rows among one GPU's look-ups"),
    "m": Letter("shards with a row of a bag, on average"),
    "domains": Letter("scale-up domains"),
    "parts": Letter("row parts, or domains with some, that send a bag"),
    "columns": Letter("column parts"),
    "q": Letter("share of the bags that is sent"),
    "elements": Letter("elements of a row that this shard holds"),
    "v": Letter("bytes of an element on the wire", "B", "pooled_element_bytes"),
    "w": Letter("bytes of an element", "B", "pooled_element_bytes"),
    "id_bytes": Letter("bytes of an id", "B"),
    "feature_bytes": Letter("bytes of the feature that is sent with a requested id", "B", "feature_id_bytes"),
    "index_bytes": Letter("bytes of the position of a bag in a sparse exchange", "B"),
    "holders": Letter("GPUs that hold a part of the table: parts columns"),
    "copies": Letter("GPUs that hold columns of one row"),
    "bag": Letter("elements v + index_bytes", "B"),
    "received": Letter("bytes of the bags that are added up", "B"),
    "fields": Letter("numbers that each peer is told", "1", "splits_per_peer"),
    "value_bytes": Letter("bytes of one of them", "B", "split_bytes"),
    "length_bytes": Letter("bytes of the length of a bag", "B", "length_bytes"),
    "state": Letter("bytes of the optimizer's state of an element", "B"),
    "hot": Letter("rows of the table that every GPU has a copy of"),
    "lookups": Letter("look-ups that are sorted"),
    "digits": Letter("digits of 8 bits of an id"),
    "place_bytes": Letter("bytes of the place of an id in the batch", "B", "sort_place_bytes"),
    "alpha": Letter("floor: the time of an empty message", "s"),
    "beta": Letter("algorithm bandwidth of a large message", "B/s"),
    "p": Letter("sharpness of the knee"),
}
"""All letters by symbol."""
