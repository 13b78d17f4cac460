# SPDX-License-Identifier: Apache-2.0
"""Allowed properties of Iceberg tables. A property is set by anyone who may alter the table or write its metadata file:
it must not name code to load, or an address or credentials for reaching files.

Libraries look for such names among a table's properties: PyIceberg imports and calls `py-io-impl`,
`write.py-location-provider.impl` and `s3.retry-strategy-impl`, and signs requests to `s3.endpoint`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from lakeward.errors import InvalidTable

log = logging.getLogger(__name__)

ALLOWED_OPTION: Final = "allowed-properties"
"""Further names that the operator allows, with commas between them; one that ends in a dot allows all below it."""

PATH_PROPERTIES: Final = frozenset(
    {"write.metadata.path", "write.data.path", "write.object-storage.path", "write.folder-storage.path"}
)
"""Where files of the table lie, beside its location."""

_WRITERS = ("write.parquet.", "write.avro.", "write.orc.", "write.delete.parquet.", "write.delete.avro.")
_NAMES: Final = frozenset(
    {
        "format-version",
        "gc.enabled",
        "schema.name-mapping.default",
        "downcast-ns-timestamp-to-us-on-write",
        "compatibility.snapshot-id-inheritance.enabled",
        "engine.hive.enabled",
        "engine.hive.lock-enabled",
        "flink.max-continuous-empty-commits",
        "commit.manifest-merge.enabled",
        "commit.manifest.min-count-to-merge",
        "commit.manifest.target-size-bytes",
        *(f"commit.{what}.{key}" for what in ("retry", "status-check") for key in ("num-retries", "min-wait-ms")),
        *(f"commit.{what}.{key}" for what in ("retry", "status-check") for key in ("max-wait-ms", "total-timeout-ms")),
        "history.expire.max-ref-age-ms",
        "history.expire.max-snapshot-age-ms",
        "history.expire.min-snapshots-to-keep",
        "read.split.",
        "read.parquet.vectorization.",
        "read.orc.vectorization.",
        "read.data-planning-mode",
        "read.delete-planning-mode",
        *_WRITERS,
        "write.delete.orc.",
        *(f"write.{what}.{key}" for what in ("delete", "update", "merge") for key in ("mode", "isolation-level")),
        *(f"write.{what}.distribution-mode" for what in ("delete", "update", "merge")),
        "write.delete.granularity",
        "write.delete.format.default",
        "write.delete.target-file-size-bytes",
        "write.distribution-mode",
        "write.format.default",
        "write.target-file-size-bytes",
        "write.summary.partition-limit",
        "write.manifest-lists.enabled",
        "write.wap.enabled",
        "write.upsert.enabled",
        "write.spark.",
        "write.metadata.compression-codec",
        "write.metadata.delete-after-commit.enabled",
        "write.metadata.previous-versions-max",
        "write.metadata.metrics.",
        *PATH_PROPERTIES,
        "write.object-storage.enabled",
        "write.object-storage.partitioned-paths",
        "created-at",
        "nessie.",
        "fluss.",
        "lakeward.",
        "option.",
    }
)
"""Of Iceberg's specification and its Java and Python libraries, of Nessie, which notes where a table came from, and our
own; Spark keeps a table's OPTIONS as `option.`. One that ends in a dot stands for all names below it."""

_NOTE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
"""One plain word, such as `owner` or `comment`, is a note for people..."""

_OPTIONS_OF_CATALOGS: Final = frozenset(
    {"type", "uri", "warehouse", "token", "credential", "scope", "audience", "resource", "auth", "ssl", "prefix"}
    | {"default_scheme", "default_netloc"}
)
"""...except for those that PyIceberg's catalogs and storage take for options of theirs."""


def refused_names(names: Iterable[str], allowed: str = "") -> list[str]:
    """Returns the properties that a table may not have. `allowed`: the lake's option `allowed-properties`."""
    exact = _NAMES | {name.strip() for name in allowed.split(",") if name.strip()}
    below = tuple(name for name in exact if name.endswith("."))
    return sorted(n for n in names if n not in exact and not n.startswith(below) and not _is_note(n))


def check_properties(table: str, properties: Mapping[str, str | None], allowed: str = "", prefix: str = "") -> None:
    """Checks properties before they are set, through any interface. Raises `InvalidTable`."""
    for name in refused_names(properties, allowed):
        reason = (
            "no table property of Iceberg that a table may set: it could name code or storage for whoever opens the "
            f"table; options of the storage belong to the lake's configuration, and the option {ALLOWED_OPTION} of the "
            "lake allows further names"
        )
        raise InvalidTable(table=table, field=f"{prefix}{name}", value=str(properties[name])[:100], reason=reason)


def with_allowed_properties(metadata: TableMetadata, allowed: str = "") -> TableMetadata:
    """Returns metadata without refused properties, for a table created before they were refused."""
    refused = refused_names(metadata.properties, allowed)
    if not refused:
        return metadata
    log.warning("Iceberg table at %s: properties %s are ignored; see docs/security.md", metadata.location, refused)
    kept = {name: value for name, value in metadata.properties.items() if name not in refused}
    return metadata.model_copy(update={"properties": kept})


def _is_note(name: str) -> bool:
    return _NOTE.fullmatch(name) is not None and name.lower() not in _OPTIONS_OF_CATALOGS
