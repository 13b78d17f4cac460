# SPDX-License-Identifier: Apache-2.0
"""The lab's tables, and another engine that compacts and expires them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, RESTError
from pyiceberg.table import Table as IcebergTable
from requests.exceptions import RequestException

from lakeward.client import Client
from lakeward.model import TablePath
from lakeward_testing.chaos.commitwatch import CommitWatch
from lakeward_testing.chaos.journal import RunJournal
from lakeward_testing.icebergforeign import IcebergForeignEngine

LOG, PK, BROKEN = "lab.events", "lab.state", "lab.broken"
TABLES = {"log": LOG, "pk": PK}
EXPIRY = {"history.expire.max-snapshot-age-ms": "20000", "history.expire.min-snapshots-to-keep": "5"}
"""So that our own expiry is at work too."""

HURT = (CommitFailedException, RESTError, RequestException, OSError, ValueError)
"""How another engine's attempt ends on a hurt catalog, or when a round was quicker."""


def create_tables(client: Client, *, log_ttl: str = "30 s", format: str = "iceberg") -> None:
    properties = {f"{format}.{key}": value for key, value in EXPIRY.items()}
    client.create_table(
        LOG,
        "producer INT NOT NULL, `row` BIGINT NOT NULL, value STRING",
        buckets=2,
        bucket_key="row",
        freshness="1 s",
        properties={**properties, "table.log.ttl": log_ttl},
        if_not_exists=True,
    )
    client.create_table(
        PK,
        "part STRING NOT NULL, id BIGINT NOT NULL, version INT, value STRING",
        primary_key=("part", "id"),
        partition_by="part",
        buckets=2,
        freshness="1 s",
        properties=properties,
        if_not_exists=True,
    )

    client.create_table(BROKEN, "id BIGINT", freshness="1 s", if_not_exists=True).append([{"id": 1}])


def break_table(server_url: str, warehouse: Path, format: str = "iceberg") -> None:
    """Somebody drops the third table from the lake: its rounds fail from then on, and must be nobody else's trouble."""
    path = TablePath.parse(BROKEN)
    if format == "paimon":
        from lakeward_testing.chaos.paimontables import break_paimon_table

        break_paimon_table(warehouse, path)
        return
    if format in ("delta", "hudi"):
        shutil.rmtree(warehouse / path.database / path.table)
        return
    if format == "lance":
        shutil.rmtree(warehouse / path.database / f"{path.table}.lance")
        return
    load_catalog("lab", type="rest", uri=f"{server_url}/iceberg").drop_table((path.database, path.table))


class Meddler(IcebergForeignEngine):
    """Commits on the head it read or not at all: stock PyIceberg would try again on a newer head, and a rewrite that
    goes over a round's deletes brings rows back. No engine that checks conflicts does that."""

    def load(self) -> IcebergTable:
        table = super().load()
        table.metadata.properties["commit.retry.num-retries"] = "0"
        return table


def meddle(server_url: str, warehouse: Path, format: str, path: str, deed: str) -> bool:
    """`compact` or `expire`; false when it did not come to pass."""
    if format == "paimon":
        from lakeward_testing.chaos.paimontables import meddle_with_paimon

        return meddle_with_paimon(warehouse, TablePath.parse(path), deed)
    if format == "delta":
        from lakeward_testing.chaos.deltatables import meddle_with_delta

        return meddle_with_delta(warehouse, TablePath.parse(path), deed)
    if format == "hudi":
        from lakeward_testing.chaos.huditables import meddle_with_hudi

        return meddle_with_hudi(warehouse, TablePath.parse(path), deed)
    if format == "lance":
        from lakeward_testing.chaos.lancetables import meddle_with_lance

        return meddle_with_lance(warehouse, TablePath.parse(path), deed)
    try:
        engine = Meddler(load_catalog("lab", type="rest", uri=f"{server_url}/iceberg"), TablePath.parse(path))
        deeds: dict[str, Callable[[], None]] = {"compact": engine.rewrite, "expire": engine.expire}
        deeds[deed]()
    except HURT:
        return False
    return True


@contextmanager
def watch_commits(warehouse: Path, format: str, journal: RunJournal) -> Iterator[None]:
    """Notes lake commits that pass no server, where the format has such."""
    watch = _open_watch(warehouse, format, journal)
    try:
        yield
    finally:
        if watch is not None:
            watch.stop()


def _open_watch(warehouse: Path, format: str, journal: RunJournal) -> CommitWatch | None:
    if format == "paimon":
        from lakeward_testing.chaos.paimontables import SnapshotWatch

        return SnapshotWatch(warehouse, (LOG, PK), journal)
    if format == "delta":
        from lakeward_testing.chaos.deltatables import EntryWatch

        return EntryWatch(warehouse, (LOG, PK), journal)
    if format == "hudi":
        from lakeward_testing.chaos.huditables import InstantWatch

        return InstantWatch(warehouse, (LOG, PK), journal)
    if format == "lance":
        from lakeward_testing.chaos.lancetables import VersionWatch

        return VersionWatch(warehouse, (LOG, PK), journal)
    return None
