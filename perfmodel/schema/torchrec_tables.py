"""TorchRec's ``EmbeddingBagConfig`` translated to this program's tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from perfmodel.errors import BadInputError
from perfmodel.schema.files import shown, unknown_name

MARK = "num_embeddings"
"""A field that every ``EmbeddingBagConfig`` has, and no table in our format."""

FIELDS: Mapping[str, tuple[Literal["used", "irrelevant", "refused"], str]] = {
    MARK: ("used", "rows"),
    "embedding_dim": ("used", "dim"),
    "name": ("used", "name"),
    "data_type": ("used", "dtype"),
    "feature_names": ("used", "one feature"),
    "pooling": ("used", "SUM or MEAN, or the number of ids"),
    "need_pos": ("used", "weighted: a position travels with each id, as a weight does"),
    "weight_init_max": ("irrelevant", "values of the weights"),
    "weight_init_min": ("irrelevant", "values of the weights"),
    "init_fn": ("irrelevant", "values of the weights"),
    "input_dim": ("irrelevant", "range of the ids before they are hashed"),
    "virtual_table_eviction_policy": ("irrelevant", "of virtual tables alone"),
    "enable_embedding_update": ("irrelevant", "rows written from outside a pass"),
    "num_embeddings_post_pruning": ("refused", "give the rows after pruning as num_embeddings"),
    "total_num_buckets": ("refused", "shards of whole buckets are not modelled"),
    "use_virtual_table": ("refused", "rows of a virtual table are in no memory until they are trained"),
    "stash_weights": ("refused", "rows that leave the memory of the GPU during a step are not modelled"),
    # Of TorchRec's ParameterConstraints and its benchmarks, and this program's own
    "pooling_factors": ("used", "ids of a sample, one number"),
    "pooling_factor": ("used", "ids of a sample"),
    "avg_pooling_factor": ("used", "ids of a sample"),
    "pooling_type": ("used", "as pooling"),
    "config_class": ("used", "EmbeddingBagConfig"),
    "embedding_names": ("irrelevant", "names of the features"),
    "count": ("used", "count"),
}
"""Every field: how it is used, to what it does not matter, or why it is refused if it is set."""

_RENAMED = {MARK: "rows", "embedding_dim": "dim", "name": "name", "count": "count", "need_pos": "weighted"}
_FACTORS = ("pooling_factors", "pooling_factor", "avg_pooling_factor")
_DTYPES = {
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
_OFF = (None, False, "", "false", "False", "0")
"""Values of a field that say the same as none."""
_SEQUENCE = (
    "its rows are not pooled: tables of a file are bags",
    ("of equal tables that are not pooled: perfmodel project --table-size SIZE --pooling none:50."),
)


def is_config(entry: object) -> bool:
    """Whether an entry of a table file is an ``EmbeddingBagConfig``."""
    return isinstance(entry, Mapping) and MARK in entry


def table_entry(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a table in our format (rows, dim, pooling, dtype, name), from an ``EmbeddingBagConfig``.

    config  its fields, of ``FIELDS``. TorchRec's config has no number of ids per bag, so one of
            ``pooling_factor``, ``avg_pooling_factor``, ``pooling_factors`` gives it, or a number as
            ``pooling`` (where TorchRec, or its ``pooling_type``, has SUM or MEAN)
    where   names the file in a message
    Limits: an unknown field, one that is refused, an unknown data_type or pooling, rows that are not pooled,
            several features of one table -> BadInputError; no number of ids -> no pooling
    """
    where = f"{where}, table {shown(config.get('name', '?'))}"
    for field, value in config.items():
        if field not in FIELDS:
            error = unknown_name("field", str(field), FIELDS)
            raise BadInputError(f"{where}: {error.message}", error.next_step)
        use, why = FIELDS[field]
        if use == "refused" and value not in _OFF:
            raise BadInputError(f"{where}: {field} {shown(value)} is not modelled: {why}.", "leave it out.")
    if str(config.get("config_class", "EmbeddingBagConfig")).rsplit(".", 1)[-1] != "EmbeddingBagConfig":
        raise BadInputError(f"{where} is {shown(config['config_class'])}: {_SEQUENCE[0]}.", _SEQUENCE[1])
    entry = {ours: config[theirs] for theirs, ours in _RENAMED.items() if theirs in config}
    pooling = _read_pooling(config, where)
    features = _list_features(config.get("feature_names"))
    if len(features) > 1:
        raise BadInputError(
            f"{where} is looked up by {len(features)} features ({', '.join(features[:3])}), which share its "
            "rows: each would have a bag of its own, and tables here have one.",
            "the nearest: one feature with the ids of all of them; it leaves out "
            f"{len(features) - 1} bags a sample.",
        )
    if isinstance(pooling, list):
        if len(pooling) != 1:
            raise BadInputError(f"{where}: {len(pooling)} pooling factors for one feature.", "give one.")
        pooling = pooling[0]
    entry |= {} if pooling is None else {"pooling": pooling}
    return entry | {"dtype": _read_dtype(config.get("data_type", "FP32"), where)}


def _read_pooling(config: Mapping[str, Any], where: str) -> Any:
    """Ids of a sample, or a list of them; None: not given. Limits: neither SUM, MEAN nor a number -> error"""
    number: float | None = None
    for field in ("pooling", "pooling_type"):
        if (value := config.get(field)) is None:
            continue
        word = str(value).rsplit(".", 1)[-1].upper()
        if word == "NONE":
            raise BadInputError(f"{where}: {field} {shown(value)}: {_SEQUENCE[0]}.", _SEQUENCE[1])
        if word in ("SUM", "MEAN", ""):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise BadInputError(
                f"{where}: {field} {shown(value)} is not known.", "SUM, MEAN, or the number of ids."
            ) from None
    return next((config[field] for field in _FACTORS if field in config), number)


def _read_dtype(value: object, where: str) -> str:
    text = str(value).rsplit(".", 1)[-1].lower()
    if text in _PACKED:
        raise BadInputError(
            f"{where}: data_type {shown(value)} is not modelled: FBGEMM packs several elements into a byte, "
            "and no look-up of such rows was timed.",
            "INT8 is modelled.",
        )
    if text not in _DTYPES:
        known = "known: BF16, FP16, FP32, INT8, NFP8, UINT8."
        raise BadInputError(f"{where}: data_type {shown(value)} is not known.", known)
    return _DTYPES[text]


def _list_features(value: object) -> list[str]:
    """Feature names: from a list, or from text with ; or | in between, as in a CSV field."""
    if isinstance(value, str):
        return [part.strip() for part in value.replace("|", ";").split(";") if part.strip()]
    return [str(part) for part in value] if isinstance(value, (list, tuple)) else []
