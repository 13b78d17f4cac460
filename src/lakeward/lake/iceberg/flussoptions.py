# SPDX-License-Identifier: Apache-2.0
"""A Fluss cluster's `datalake.iceberg.*` as options of ours: Java's catalog properties as PyIceberg's.

Fluss leaves out keys that look secret. They come from each process's own environment:
PYICEBERG_CATALOG__FLUSS_ICEBERG_CATALOG__... for catalogs, AWS_... for storage, PGUSER and PGPASSWORD for a catalog in
PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakeward.errors import InvalidConfig, UnsafeLake

CATALOG_NAME = "fluss-iceberg-catalog"
"""Fluss's own default; a catalog in a database keeps tables under this name."""

_IMPLEMENTATIONS = {
    "RESTCatalog": "rest",
    "JdbcCatalog": "jdbc",
    "HiveCatalog": "hive",
    "GlueCatalog": "glue",
    "HadoopCatalog": "hadoop",
}
_JAVA_ONLY = re.compile(r"io-impl|catalog-impl|jdbc\..*|iceberg\.hadoop\..*|clients|cache-enabled|lock-impl|lock\..*")
_SQLITE_WAIT_S = 30
"""Java's driver holds the file's lock for seconds on a busy machine; Python's default wait is 5 s."""

_JDBC = re.compile(r"jdbc:(sqlite|postgresql|mysql|mariadb):(.*)")
_DIALECTS = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mysql+pymysql"}


def iceberg_options(given: Mapping[str, str]) -> dict[str, str]:
    """Raises `InvalidConfig`, `UnsafeLake`."""
    kind = _kind(given)
    if kind == "hadoop":
        raise UnsafeLake(
            lake="iceberg with a hadoop catalog",
            reason="it commits by renaming files, and two writers can both believe they won; use a rest, jdbc, hive "
            "or glue catalog",
        )
    kept = {k: v for k, v in given.items() if k != "type" and not _JAVA_ONLY.fullmatch(k)}
    kept.setdefault("name", CATALOG_NAME)
    if kind == "jdbc":
        return {**kept, "type": "sql", "uri": _database_uri(given.get("uri", ""))}
    return {**kept, "type": kind}


def _kind(given: Mapping[str, str]) -> str:
    """As Java has it: the type in any case, else the class, else hive. Raises `UnsafeLake` for one that PyIceberg does
    not have.
    """
    named = given.get("type") or given.get("catalog-impl", "")
    kind = (
        named.lower()
        if given.get("type")
        else _IMPLEMENTATIONS.get(named.rpartition(".")[2], "hive" if not named else "")
    )
    if kind not in _IMPLEMENTATIONS.values():
        reason = (
            "Lakeward cannot commit to it; use a rest, jdbc, hive or glue catalog, or leave its tables to "
            "Fluss's Flink job"
        )
        raise UnsafeLake(lake=f"iceberg with the catalog {named}", reason=reason)
    return kind


def _database_uri(uri: str) -> str:
    """`jdbc:sqlite:/path`, `jdbc:postgresql://host/db` as SQLAlchemy spells them."""
    match = _JDBC.fullmatch(uri)
    if match is None:
        raise InvalidConfig(
            where=f"datalake.iceberg.uri = {uri}", reason="known databases are sqlite, postgresql, mysql and mariadb"
        )
    kind, rest = match.groups()
    if kind == "sqlite":
        return f"sqlite:///{rest.removeprefix('file:').partition('?')[0]}?timeout={_SQLITE_WAIT_S}"
    return f"{_DIALECTS[kind]}:{rest.partition('?')[0]}"
