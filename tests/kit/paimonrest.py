# SPDX-License-Identifier: Apache-2.0
"""A Paimon REST catalog on this machine, for tests: it keeps tables in a folder and takes commits itself, each on an
exact head. No server of Paimon's own: what it answers follows what pypaimon and pypaimon-rust ask.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pypaimon import CatalogFactory, Schema
from pypaimon.catalog.catalog_exception import (
    DatabaseAlreadyExistException,
    DatabaseNotExistException,
    TableAlreadyExistException,
    TableNotExistException,
)
from pypaimon.common.identifier import Identifier
from pypaimon.common.json_util import JSON
from pypaimon.schema.data_types import DataTypeParser
from pypaimon.schema.schema_change import Move, MoveType, SchemaChange

from lakeward.lake.tablefiles import LocalFiles
from lakeward.model import TablePath

TOKEN, PREFIX = "secret", "paimon"
Answer = tuple[int, dict[str, Any]]


class PaimonRestServer:
    """`options` are those of a lake. `before_answer` is called with the path of every commit that landed, before it is
    answered: what it raises cuts the line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.before_answer: Callable[[str], object] = lambda _path: None
        self._catalog = CatalogFactory.create({"warehouse": str(folder)})
        self._ids = dict[str, str]()
        self._lock = threading.RLock()
        self.commits = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def options(self) -> dict[str, str]:
        uri = f"http://127.0.0.1:{self._server.server_port}"
        return {"metastore": "rest", "uri": uri, "warehouse": "main", "token.provider": "bear", "token": TOKEN}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def forget(self, path: TablePath) -> None:
        """As if the table had been dropped and made anew: it gets another id."""
        self._ids[str(path)] = str(uuid.uuid4())

    def answer(self, method: str, path: str, body: Any) -> Answer:
        parts = [unquote(p) for p in urlparse(path).path.strip("/").split("/")]
        if parts == ["v1", "config"]:
            return 200, {"defaults": {"prefix": PREFIX}, "overrides": {}}
        with self._lock:
            try:
                return self._route(method, tuple(parts[2:]), body)
            except (DatabaseNotExistException, TableNotExistException) as error:
                kind = "TABLE" if isinstance(error, TableNotExistException) else "DATABASE"
                return 404, {"resourceType": kind, "resourceName": parts[-1], "message": str(error), "code": 404}
            except (DatabaseAlreadyExistException, TableAlreadyExistException) as error:
                kind = "TABLE" if isinstance(error, TableAlreadyExistException) else "DATABASE"
                return 409, {"resourceType": kind, "resourceName": parts[-1], "message": str(error), "code": 409}

    def _route(self, method: str, parts: tuple[str, ...], body: Any) -> Answer:
        match method, *parts:
            case "GET", "databases":
                return 200, {"databases": self._catalog.list_databases(), "nextPageToken": None}
            case "POST", "databases":
                self._catalog.create_database(body["name"], False)
                return 200, {}
            case "GET", "databases", name:
                self._catalog.get_database(name)
                return 200, {"id": name, "name": name, "location": f"{self.folder}/{name}.db", "options": {}}
            case "GET", "databases", database, "tables":
                return 200, {"tables": self._catalog.list_tables(database), "nextPageToken": None}
            case "POST", "databases", database, "tables":
                schema = JSON.from_json(json.dumps(body["schema"]), Schema)
                self._catalog.create_table(f"{database}.{body['identifier']['object']}", schema, False)
                return 200, {}
            case _, "databases", database, "tables", table, *rest:
                return self._of_table(method, f"{database}.{table}", rest, body)
        return 501, {"message": f"{method} {'/'.join(parts)}", "code": 501}

    def _of_table(self, method: str, name: str, rest: list[str], body: Any) -> Answer:
        table = self._catalog.get_table(name)
        match method, *rest:
            case ("GET",):
                schema = table.table_schema
                return 200, {
                    "id": self._ids.setdefault(name, str(uuid.uuid4())),
                    "name": name.partition(".")[2],
                    "path": f"file:{table.table_path}",
                    "isExternal": False,
                    "schemaId": schema.id,
                    "schema": json.loads(JSON.to_json(schema.to_schema())),
                }
            case ("POST",):
                self._catalog.alter_table(name, [_change(c) for c in body["changes"]], False)
                return 200, {}
            case "GET", "snapshot":
                return self._newest(name, table)
            case "POST", "rollback":
                table.rollback_to(body["instant"]["snapshotId"])
                return 200, {}
            case "POST", "commit":
                return 200, {"success": self._commit(name, table, body)}
        return 501, {"message": f"{method} {'/'.join(rest)}", "code": 501}

    def _newest(self, name: str, table: Any) -> Answer:
        head = _head(Path(table.table_path))
        if head is None:
            return 404, {"resourceType": "SNAPSHOT", "resourceName": name, "message": "none", "code": 404}
        figures = {"recordCount": 0, "fileSizeInBytes": 0, "fileCount": 0, "lastFileCreationTime": 0}
        return 200, {"snapshot": {"snapshot": head, **figures}}

    def _commit(self, name: str, table: Any, body: Any) -> bool:
        """On exactly the head that the client names, by the snapshot's own id."""
        folder, new = Path(table.table_path), body["snapshot"]
        if body["tableId"] != self._ids.get(name):
            raise TableNotExistException(Identifier.from_string(name))
        head = _head(folder)
        found = (0, None) if head is None else (head["id"], head.get("uuid"))
        if found != (new["id"] - 1, body.get("baseSnapshotUuid")):
            return False
        if not LocalFiles().put_exclusively(str(folder / "snapshot" / f"snapshot-{new['id']}"), json.dumps(new)):
            return False
        self.commits += 1
        self.before_answer(name)
        return True


def _change(body: dict[str, Any]) -> Any:
    match body["action"]:
        case "setOption":
            return SchemaChange.set_option(body["key"], body["value"])
        case "removeOption":
            return SchemaChange.remove_option(body["key"])
        case "dropColumn":
            return SchemaChange.drop_column(body["fieldNames"])
        case "addColumn":
            given = body.get("move")
            move = given and Move(given["fieldName"], given.get("referenceFieldName"), MoveType(given["type"]))
            kind = DataTypeParser.parse_data_type(body["dataType"])
            return SchemaChange.add_column(body["fieldNames"], kind, body.get("comment"), move)
    raise ValueError(f"{body['action']} is not served")


def _head(folder: Path) -> dict[str, Any] | None:
    numbers = [int(p.name.rpartition("-")[2]) for p in (folder / "snapshot").glob("snapshot-*")]
    if not numbers:
        return None
    body: dict[str, Any] = json.loads((folder / "snapshot" / f"snapshot-{max(numbers)}").read_text())
    return body


def _handler(server: PaimonRestServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._send(401, {"message": "who is it?", "code": 401})
                return
            try:
                answer = server.answer(method, self.path, json.loads(data) if data else None)
            except ConnectionError:  # the answer is lost
                self.close_connection = True
                return
            except Exception as error:  # noqa: BLE001 - a server answers whatever happens
                answer = 500, {"message": f"{type(error).__name__}: {error}", "code": 500}
            self._send(*answer)

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
