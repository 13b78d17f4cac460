# SPDX-License-Identifier: Apache-2.0
"""Checks Iceberg table properties that users set: unknown ones, and values that every round depends on. Values of other
properties pass unchanged: the lake table stores them for other readers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from lakeward.errors import InvalidConfig, InvalidTable
from lakeward.lake.core.catalog import SWITCH, Allowed
from lakeward.lake.iceberg.datafile.parquet import ParquetOptions
from lakeward.lake.iceberg.meta.mapping import LAKE_PREFIX, lake_key
from lakeward.lake.iceberg.meta.tableproperties import check_properties
from lakeward.model import TablePath

_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_METRICS = Allowed(r"none|counts|full|truncate\(0*[1-9]\d*\)", "none, counts, full or truncate(N)")
_VALUES = {
    _LEVEL: Allowed(r"-?\d+|null", "a whole number"),
    "write.metadata.delete-after-commit.enabled": SWITCH,
    "write.object-storage.enabled": SWITCH,
    "write.object-storage.partitioned-paths": SWITCH,
    "write.metadata.metrics.default": _METRICS,
}
_COLUMN_METRICS = "write.metadata.metrics.column."


def check_given(path: TablePath, properties: Mapping[str, str], said: Collection[str], more: str = "") -> None:
    """Checks the properties. `more`: the lake's option `allowed-properties`. Raises `InvalidTable`."""
    lake_properties = {lake_key(k): v for k, v in properties.items() if k.startswith(LAKE_PREFIX)}
    names = {lake_key(k) for k in said if k.startswith(LAKE_PREFIX)}
    check_properties(str(path), {n: lake_properties[n] for n in names & lake_properties.keys()}, more, LAKE_PREFIX)
    for name in names & lake_properties.keys():
        allowed = _METRICS if name.startswith(_COLUMN_METRICS) else _VALUES.get(name)
        if allowed is not None:
            allowed.check(path, f"{LAKE_PREFIX}{name}", lake_properties[name])
    if names & {_CODEC, _LEVEL}:
        _check_compression(path, {k: lake_properties[k] for k in (_CODEC, _LEVEL) if k in lake_properties})


def _check_compression(path: TablePath, given: Mapping[str, str]) -> None:
    """Checks codec and level together, as each codec has its own levels or none."""
    where = _LEVEL if _LEVEL in given else _CODEC
    try:
        options = ParquetOptions.parse(given)
        if options.level is not None:
            pa.Codec(options.codec, compression_level=options.level)
    except InvalidConfig as error:
        reason = error.reason
        raise InvalidTable(
            table=str(path), field=f"{LAKE_PREFIX}{_CODEC}", value=given[_CODEC], reason=reason
        ) from error
    except (ValueError, OSError) as error:  # pa.ArrowInvalid is a ValueError
        codec = given.get(_CODEC, "zstd")
        reason = f"{codec} has no such level; take another, or remove the property"
        raise InvalidTable(
            table=str(path), field=f"{LAKE_PREFIX}{where}", value=given.get(where, ""), reason=reason
        ) from error
