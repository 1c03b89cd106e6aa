"""TorchRec's ``EmbeddingBagConfig`` translated to this program's tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.errors import BadInputError
from perfmodel.schema.files import shown, unknown_name

MARK = "num_embeddings"
"""A field that every ``EmbeddingBagConfig`` has, and no table in our format."""

_NAMES = {MARK: "rows", "embedding_dim": "dim", "name": "name", "count": "count"}
_POOLING = ("pooling_factors", "pooling_factor", "avg_pooling_factor")
_UNUSED = frozenset(
    (
        *(
            "feature_names",
            "embedding_names",
            "pooling",
            "pooling_type",
            "data_type",
            "need_pos",
            "input_dim",
            "init_fn",
        ),
        *("weight_init_max", "weight_init_min", "num_embeddings_post_pruning", "total_num_buckets"),
        *("use_virtual_table", "virtual_table_eviction_policy", "enable_embedding_update", "stash_weights"),
    )
)
_DTYPES = {
    "fp64": "fp64",
    "float64": "fp64",
    "fp32": "fp32",
    "float32": "fp32",
    "fp16": "fp16",
    "float16": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "nfp8": "fp8",
    "int8": "int8",
    "uint8": "int8",
}
_PACKED = ("int4", "int2")


NAMES = frozenset((*_NAMES, *_POOLING, *_UNUSED))
"""Fields that an ``EmbeddingBagConfig`` may have here."""


def is_config(entry: object) -> bool:
    """Whether an entry of a table file is an ``EmbeddingBagConfig``."""
    return isinstance(entry, Mapping) and MARK in entry


def table_entry(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a table in our format (rows, dim, pooling, dtype, name), from an ``EmbeddingBagConfig``.

    config  its fields. TorchRec's config has no number of rows per bag, so one of these fields gives it:
            ``pooling_factor``, ``avg_pooling_factor``, ``pooling_factors`` as in TorchRec's
            ``ParameterConstraints``, or a number as ``pooling`` (where TorchRec, or its ``pooling_type``, has
            SUM or MEAN)
    where   names the file in a message
    Limits: an unknown field, an unknown data_type, several features of one table -> BadInputError; none of
            these fields -> no pooling
    """
    name = shown(config.get("name", "?"))
    for field in config:
        if field not in NAMES:
            error = unknown_name("field", str(field), NAMES)
            raise BadInputError(f"{where}, table {name}: {error.message}", error.next_step)
    features = _listed(config.get("feature_names"))
    if len(features) > 1:
        raise BadInputError(
            f"{where}, table {name} is looked up by {len(features)} features ({', '.join(features[:3])}).",
            "one feature a table is understood: give each feature a table of its own.",
        )
    entry = {ours: config[theirs] for theirs, ours in _NAMES.items() if theirs in config}
    pooling = _pooling(config, where, name)
    entry |= {} if pooling is None else {"pooling": pooling}
    entry["dtype"] = _dtype(config.get("data_type", "FP32"), where, name)
    return entry


def _pooling(config: Mapping[str, Any], where: str, name: str) -> Any:
    value = next((config[each] for each in _POOLING if each in config), _number(config.get("pooling")))
    if isinstance(value, list):
        if len(value) != 1:
            raise BadInputError(
                f"{where}, table {name}: {len(value)} pooling factors for one feature.", "give one."
            )
        value = value[0]
    return value


def _number(value: object) -> float | None:
    """A pooling that is a number; None for TorchRec's SUM or MEAN, or nothing."""
    try:
        return float(str(value))
    except ValueError:
        return None


def _dtype(value: object, where: str, name: str) -> str:
    text = str(value).rsplit(".", 1)[-1].lower()
    if text in _PACKED:
        raise BadInputError(
            f"{where}, table {name}: data_type {shown(value)} is not modelled: FBGEMM packs several "
            "elements into a byte, and no look-up of such rows was timed.",
            "INT8 is modelled.",
        )
    if text not in _DTYPES:
        raise BadInputError(
            f"{where}, table {name}: data_type {shown(value)} is not known.",
            "known: BF16, FP16, FP32, FP64, INT8, NFP8.",
        )
    return _DTYPES[text]


def _listed(value: object) -> list[str]:
    """Feature names: from a list, or from text with ; or | in between, as in a CSV field."""
    if isinstance(value, str):
        return [part.strip() for part in value.replace("|", ";").split(";") if part.strip()]
    return [str(part) for part in value] if isinstance(value, (list, tuple)) else []
