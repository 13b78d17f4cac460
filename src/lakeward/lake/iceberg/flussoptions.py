# SPDX-License-Identifier: Apache-2.0
"""Translates a Fluss cluster's `datalake.iceberg.*` options: Java's catalog properties to PyIceberg's.

Fluss omits keys that look secret. They come from each process's own environment:
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
    """Translates the options. Raises `InvalidConfig`, `UnsafeLake`."""
    kind = _kind(given)
    if kind == "hadoop":
        raise UnsafeLake(
            lake="iceberg with a hadoop catalog",
            reason="it commits by renaming files, and two writers can both believe they won; use a rest, jdbc, hive "
            "or glue catalog",
        )
    passed = {k: v for k, v in given.items() if k != "type" and not _JAVA_ONLY.fullmatch(k)}
    passed.setdefault("name", CATALOG_NAME)
    if kind == "jdbc":
        return {**passed, "type": "sql", "uri": _database_uri(given.get("uri", ""))}
    return {**passed, "type": kind}


def _kind(given: Mapping[str, str]) -> str:
    """Returns the catalog's type as Java determines it: the type in any case, else the class, else hive. Raises
    `UnsafeLake` for a type that PyIceberg does not support."""
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
    """Converts `jdbc:sqlite:/path`, `jdbc:postgresql://host/db` to SQLAlchemy's form."""
    match = _JDBC.fullmatch(uri)
    if match is None:
        raise InvalidConfig(
            where=f"datalake.iceberg.uri = {uri}", reason="known databases are sqlite, postgresql, mysql and mariadb"
        )
    kind, rest = match.groups()
    if kind == "sqlite":
        return f"sqlite:///{rest.removeprefix('file:').partition('?')[0]}?timeout={_SQLITE_WAIT_S}"
    return f"{_DIALECTS[kind]}:{rest.partition('?')[0]}"
