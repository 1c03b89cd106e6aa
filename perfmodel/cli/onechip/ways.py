"""``perfmodel chip ways``: where each way to look a table up wins."""

from __future__ import annotations

from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
from perfmodel.cli.onechip.options import (
    ChipOption,
    ChipSetOption,
    DimOption,
    DtypeOption,
    PoolingOption,
    chip_of,
)
from perfmodel.cli.options import JsonOption
from perfmodel.cli.output import emit, emit_json


def ways(
    chip: ChipOption,
    dim: DimOption = None,
    dtype: DtypeOption = None,
    pooling: PoolingOption = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    settings: ChipSetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which way to look a table up is fastest on one core: a map of rows by look-ups.

    \b
    Examples
      perfmodel chip ways --chip ascend-910
      perfmodel chip ways --chip h100-sxm --dim 128 --dtype fp16
    """
    from perfmodel.onechip.ways import ways_map
    from perfmodel.report.onechip.ways_text import ways_text
    from perfmodel.schema.workload import dtype_bytes
    from perfmodel.units import parse_count, parse_number

    found = ways_map(
        chip_of(chip, settings),
        parse_count(dim or "64", "--dim"),
        dtype_bytes(dtype or "fp32"),
        parse_number(pooling or "1", "--pooling"),
        ids_of(alpha, distribution),
    )
    if as_json:
        emit_json("chips", **found.to_dict())
    else:
        emit(ways_text(found))
