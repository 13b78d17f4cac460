# SPDX-License-Identifier: Apache-2.0
"""Checks Paimon table options that users set: unknown ones, and values that rounds and compactions depend on. Values of
other options pass unchanged: the lake table stores them for other readers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping

from pypaimon.common.options.config_option import ConfigOption
from pypaimon.common.options.core_options import CoreOptions
from pypaimon.common.options.options_utils import OptionsUtils

from lakeward.errors import InvalidTable
from lakeward.lake.core.catalog import NUMBER, Allowed
from lakeward.lake.paimon.meta.mapping import LAKE_PREFIX, lake_key
from lakeward.model import TablePath

_VALUES = {
    "file.compression": Allowed.of("none", "snappy", "gzip", "lz4", "lz4_raw", "zstd"),
    "manifest.compression": Allowed.of("null", "deflate", "snappy", "zstd", "bzip2", "xz"),
    "metadata.stats-mode": Allowed(r"none|counts|full|truncate\(\d+\)", "none, counts, full or truncate(N)"),
    "num-levels": NUMBER,
    "num-sorted-run.compaction-trigger": NUMBER,
}
"""Allowed values of text options: those that Paimon's writers and our compactions both support."""


_JAVA = (
    "async-",
    "avro.",
    "bitmap-index.",
    "btree-index.",
    "cache-",
    "changelog.",
    "changelog-file.",
    "changelog-producer.",
    "commit.",
    "compaction.",
    "consumer.",
    "cross-partition-upsert.",
    "deduplicate.",
    "deletion-vector",
    "dynamic-",
    "end-input.",
    "fields.",
    "file-index.",
    "file-operation.",
    "first-row.",
    "full-compaction.",
    "history.expire.",
    "incremental-",
    "local-",
    "local-merge-",
    "log.",
    "lookup",
    "manifest.",
    "materialized-table.",
    "merge-engine.",
    "metadata.",
    "metastore.",
    "num-",
    "object-",
    "orc.",
    "page-",
    "parquet.",
    "partial-update.",
    "partition.",
    "read.",
    "record-level.",
    "rowkind.",
    "scan.",
    "sequence.",
    "sink.",
    "snapshot.",
    "sort-",
    "sorted-",
    "source.",
    "spill-",
    "streaming-read-",
    "tag.",
    "target-file-",
    "unaware-bucket.",
    "write-",
    "write.",
    "zorder.",
    "fluss.",
)
"""Prefixes of options that only Paimon's Java libraries have."""

_CODE_OR_CACHE = re.compile(r"(.*[.-])?(class|callbacks?|impl|loader|local-cache)([.-].*)?")
"""Options that name code for a Java engine to load, or folders on a reader's machine."""

_NOTE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
"""A plain word is a note for people."""


FIXED_OPTIONS: frozenset[str] = CoreOptions.IMMUTABLE_OPTIONS


def check_given(path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
    """Checks the options. Raises `InvalidTable`."""
    for key in (k for k in said if k.startswith(LAKE_PREFIX) and k in properties):
        name, value = lake_key(key), properties[key]
        _check_name(path, key, value)
        if name in _VALUES:
            _VALUES[name].check(path, key, value)
        elif (option := _options().get(name)) and isinstance(option.get_clazz(), type):  # it converts no maps
            try:
                OptionsUtils.convert_value(value, option.get_clazz())
            except ValueError as error:
                raise InvalidTable(table=str(path), field=key, value=value, reason=f"Paimon: {error}") from error


def _check_name(path: TablePath, key: str, value: str) -> None:
    name = lake_key(key)
    known = name in _options() or name in _VALUES or name.startswith(_JAVA) or _NOTE.fullmatch(name)
    if not known or _CODE_OR_CACHE.fullmatch(name):
        reason = (
            "no option of Paimon that a table may set: it could name code or storage for whoever opens the table; "
            "options of the storage belong to the lake's configuration"
        )
        raise InvalidTable(table=str(path), field=key, value=value[:100], reason=reason)


@functools.cache
def _options() -> dict[str, ConfigOption]:
    return {o.key(): o for o in vars(CoreOptions).values() if isinstance(o, ConfigOption)}
