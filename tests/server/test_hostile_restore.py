# SPDX-License-Identifier: Apache-2.0
"""`restore-lake` of a table whose owner may write below its own folder: its files name those of another tenant."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lakeward.client import Client
from lakeward.errors import LakewardError
from lakeward.protocol import routes
from tests.kit.serverprocess import ServerProcess
from tests.server.test_sides import working

SECRET = "the-salary-of-ben"
Plant = Callable[[Path, dict[str, Any]], None]


def _copy(folder: Path, metadata: dict[str, Any]) -> None:
    (folder / "99999-copy.metadata.json").write_text(json.dumps(metadata))


def _with_own_location(folder: Path, metadata: dict[str, Any]) -> None:
    _copy(folder, {**metadata, "location": f"file://{folder.parent}"})


def _with_log_of_others(folder: Path, metadata: dict[str, Any]) -> None:
    log = [{"timestamp-ms": 1, "metadata-file": s["manifest-list"]} for s in metadata["snapshots"]]
    _copy(folder, {**metadata, "metadata-log": log})


def _link(folder: Path, metadata: dict[str, Any]) -> None:
    """To the other table's folder, in place of its own."""
    place = folder.parent
    place.rename(place.with_name("aside"))
    place.symlink_to(Path(metadata["location"].removeprefix("file://")))


def _pipe(folder: Path, _metadata: dict[str, Any]) -> None:
    os.mkfifo(folder / "99999-pipe.metadata.json")


def _hole(folder: Path, _metadata: dict[str, Any]) -> None:
    with (folder / "99999-hole.metadata.json").open("wb") as file:
        file.truncate(1 << 42)


def _deep(folder: Path, _metadata: dict[str, Any]) -> None:
    (folder / "99999-deep.metadata.json").write_text("[" * 1_000_000)


PLANTS: tuple[Plant, ...] = (_with_own_location, _copy, _with_log_of_others, _link, _pipe, _hole, _deep)


@pytest.mark.parametrize(
    "plant",
    [PLANTS[0], *(pytest.param(plant, marks=pytest.mark.soak) for plant in PLANTS[1:])],
    ids=lambda p: p.__name__,
)
def test_nothing_of_the_other_table_is_read_or_deleted(plant: Plant, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", settings={"datalake.format": "iceberg"})
    try:
        client = server.start().client()
        with working(server):
            for name, text in (("ann.t", "own"), ("ben.secret", SECRET)):
                client.create_table(name, "id BIGINT, name STRING", freshness="1 h").append([{"id": 1, "name": text}])
                client.tier_now(name, limit_s=120)
        own, other = _metadata(client, "ann", "t"), _metadata(client, "ben", "secret")
        before = _files(Path(other["location"].removeprefix("file://")))
        client.server.ask("DELETE", f"{routes.ICEBERG}/v1/namespaces/ann/tables/t")
        text = json.dumps({**other, "last-updated-ms": 2**42})
        for ours, theirs in zip(_ids(own), _ids(other), strict=True):
            text = text.replace(theirs, ours)
        plant(Path(own["location"].removeprefix("file://")) / "metadata", json.loads(text))
        with suppress(LakewardError):
            client.restore_lake("ann.t")
        for mode in ("lake", "union"):
            with suppress(LakewardError):
                names = client.read("ann.t", mode=mode).to_table()["name"].to_pylist()
                assert set(names) <= {"own"}
        for with_lake in (True, False):
            with suppress(LakewardError):
                client.drop_table("ann.t", with_lake=with_lake)
        assert _files(Path(other["location"].removeprefix("file://"))) == before
        rows = client.read("ben.secret", mode="lake").to_table().to_pylist()
        assert rows == [{"id": 1, "name": SECRET}]
    finally:
        server.close()


def _metadata(client: Client, database: str, table: str) -> dict[str, Any]:
    loaded: dict[str, Any] = client.server.ask("GET", f"{routes.ICEBERG}/v1/namespaces/{database}/tables/{table}")
    return dict(loaded["metadata"])


def _ids(metadata: dict[str, Any]) -> tuple[str, ...]:
    """The table's id in Lakeward's snapshots: with it the file counts as this table's."""
    (snapshot,) = metadata["snapshots"]
    return (snapshot["summary"]["lakeward.table-id"], metadata["table-uuid"])


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
