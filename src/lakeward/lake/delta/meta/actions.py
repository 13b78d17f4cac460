# SPDX-License-Identifier: Apache-2.0
"""Actions of a Delta log: entries, and the table state that replaying them gives."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from lakeward.lake.delta.meta.vector import Vector, vector_id
from lakeward.lake.tablefiles import plain_path
from lakeward.model import BUCKET, OFFSET, PARTITION_SEPARATOR, Bucket, OffsetRange, SnapshotId
from lakeward.spi import OFFSETS_KEY

DOMAIN = "lakeward"
"""Name of our `domainMetadata`, which records our newest commit; every engine copies it to checkpoints."""

VERSION_KEY = "lakeward.version"
"""The version that our newest commit created; it never expires."""

EXPIRED_KEY = "lakeward.expired"
WITNESS_KEY = "lakeward.witness"
"""`BUCKET@OFFSET`: our newest commit with rows added one there, at this offset or above, and no version before has one.
Compactions preserve it."""

_SINCE, _VECTOR_SINCE = VERSION_KEY, "lakeward.vector-version"
"""Tags of a data file: the versions that added its rows and its vector."""

WHOLE = "whole-"
"""Name prefix of data files that contain partition values too: an engine may scan them directly."""

_FILE_KINDS = frozenset({"add", "remove", "cdc"})
Action = dict[str, Any]


MAPPING_KEY = "delta.columnMapping.mode"
PHYSICAL_NAME, FIELD_ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
"""Keys of a field's metadata, if the table has column mapping."""


@dataclass(frozen=True)
class AddFile:
    """A data file of the table. `action`: the log's own form."""

    action: Action

    @property
    def key(self) -> tuple[str, str]:
        return key_of(self.action)

    @property
    def vector(self) -> Vector | None:
        return self.action.get("deletionVector")

    @property
    def size_bytes(self) -> int:
        return int(self.action["size"])

    @cached_property
    def stats(self) -> dict[str, Any]:
        return dict(json.loads(self.action.get("stats") or "{}"))

    @property
    def records(self) -> int | None:
        """None: its writer recorded no count."""
        return self.stats.get("numRecords")

    @property
    def deleted(self) -> int:
        return int(self.vector["cardinality"]) if self.vector else 0

    @property
    def offsets(self) -> OffsetRange | None:
        low, high = (self.stats.get(k, {}).get(OFFSET) for k in ("minValues", "maxValues"))
        return None if low is None or high is None else OffsetRange(low, high + 1)

    @property
    def is_whole(self) -> bool:
        return str(self.action["path"]).rpartition("/")[2].startswith(WHOLE)

    @property
    def since(self) -> int:
        """The version that added its rows; 0 if another engine wrote them."""
        return int((self.action.get("tags") or {}).get(_SINCE, 0))

    @property
    def vector_since(self) -> int:
        return int((self.action.get("tags") or {}).get(_VECTOR_SINCE, 0))

    def location(self, root: str) -> str:
        path = unquote(str(self.action["path"]))
        return plain_path(path if path.startswith("/") or "://" in path else f"{root}/{path}")

    def partition(self, keys: Sequence[str]) -> dict[str, str]:
        values = self.action.get("partitionValues") or {}
        return {k: values[k] for k in keys if values.get(k) is not None}

    def bucket(self, keys: Sequence[str]) -> Bucket | None:
        """None: it is not partitioned as our tables are."""
        number, values = (self.action.get("partitionValues") or {}).get(BUCKET), self.partition(keys)
        if number is None or len(values) < len(keys):
            return None
        return Bucket(PARTITION_SEPARATOR.join(values[k] for k in keys), int(number))

    def with_vector(self, vector: Vector, version: int) -> AddFile:
        """Removes the mark that bounds are exact: they include deleted rows."""
        stats = json.dumps({**self.stats, "tightBounds": False})
        return AddFile({**self.action, "deletionVector": vector, "stats": stats})._tagged(_VECTOR_SINCE, version)

    def with_since(self, version: int) -> AddFile:
        return self._tagged(_SINCE, version)

    def _tagged(self, tag: str, version: int) -> AddFile:
        return AddFile({**self.action, "tags": {**(self.action.get("tags") or {}), tag: str(version)}})

    def removal(self, at_ms: int, *, changes_data: bool) -> Action:
        copied_keys = ("path", "partitionValues", "size", "deletionVector")
        facts = {k: self.action[k] for k in copied_keys if self.action.get(k) is not None}
        return {
            "remove": {
                **facts,
                "deletionTimestamp": at_ms,
                "dataChange": changes_data,
                "extendedFileMetadata": True,
            }
        }


@dataclass(frozen=True)
class LogEntry:
    """One version, without the files that it names. `written_at_ms`: its file's time, for entries that do not record
    one. `adds_rows`, `removes_rows`: other than by moving rows."""

    version: int
    actions: tuple[Action, ...]
    adds: bool = False
    adds_rows: bool = False
    removes: bool = False
    removes_rows: bool = False
    written_at_ms: int = 0

    @classmethod
    def parse(cls, version: int, actions: Iterable[Action], written_at_ms: int = 0) -> LogEntry:
        every = list(actions)
        added = [a["add"] for a in every if a.get("add") is not None]
        removed = [a["remove"] for a in every if a.get("remove") is not None]
        return cls(
            version=version,
            actions=tuple(a for a in every if not _FILE_KINDS.intersection(a)),
            adds=bool(added),
            adds_rows=any(a.get("dataChange", True) for a in added),
            removes=bool(removed),
            removes_rows=any(r.get("dataChange", True) for r in removed),
            written_at_ms=written_at_ms,
        )

    @property
    def snapshot_id(self) -> SnapshotId:
        return SnapshotId(str(self.version))

    def of(self, kind: str) -> list[Action]:
        return [a[kind] for a in self.actions if a.get(kind) is not None]

    @cached_property
    def info(self) -> Action:
        return next(iter(self.of("commitInfo")), {})

    @property
    def says_when(self) -> bool:
        return bool(self.info.get("inCommitTimestamp") or self.info.get("timestamp"))

    @property
    def committed_at_ms(self) -> int:
        return int(self.info.get("inCommitTimestamp") or self.info.get("timestamp") or self.written_at_ms)

    @cached_property
    def keys(self) -> dict[str, str]:
        """Keys of our commit; empty for a foreign one, and for ours that made no snapshot."""
        said = next((_parse_domain(d) for d in self.of("domainMetadata") if d["domain"] == DOMAIN), {})
        return said if said.get(VERSION_KEY) == str(self.version) else {}

    @property
    def is_snapshot(self) -> bool:
        """False for a change of columns or properties alone: it has the rows of the version before."""
        kinds = {kind for action in self.actions for kind in action}
        return bool(self.keys or self.adds or self.removes or not kinds & {"metaData", "protocol", "domainMetadata"})

    @property
    def operation(self) -> str:
        return str(self.info.get("operation", "unknown"))


@dataclass(frozen=True)
class DeltaTableState:
    """The table at one version."""

    version: int
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    files: Mapping[tuple[str, str], AddFile] = field(default_factory=dict)
    domains: Mapping[str, Action] = field(default_factory=dict)
    transactions: Mapping[str, Action] = field(default_factory=dict)

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.get("configuration") or {}

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("partitionColumns") or ())

    @cached_property
    def partition_keys(self) -> tuple[str, ...]:
        """Names of partition columns as files use them: the physical names."""
        if MAPPING_KEY not in self.properties:
            return tuple(c for c in self.partition_columns if c != BUCKET)
        fields = json.loads(self.metadata["schemaString"])["fields"]
        names = {f["name"]: (f.get("metadata") or {}).get(PHYSICAL_NAME, f["name"]) for f in fields}
        return tuple(names[c] for c in self.partition_columns if c != BUCKET)

    @cached_property
    def said(self) -> dict[str, str]:
        """The record of our newest commit, and which versions expired."""
        return _parse_domain(self.domains[DOMAIN]) if DOMAIN in self.domains else {}

    @property
    def keys(self) -> dict[str, str]:
        """Empty: we have not committed yet."""
        return self.said if OFFSETS_KEY in self.said else {}

    @cached_property
    def expired(self) -> frozenset[int]:
        return frozenset(json.loads(self.said.get(EXPIRED_KEY, "[]")))

    def after(self, version: int, actions: Iterable[Action]) -> DeltaTableState:
        files, domains, transactions = dict(self.files), dict(self.domains), dict(self.transactions)
        protocol, metadata, added = self.protocol, self.metadata, []
        for action in actions:
            for kind, body in action.items():
                match kind:
                    case "add":
                        added.append(AddFile(body))
                    case "remove":
                        files.pop(key_of(body), None)
                    case "metaData":
                        metadata = body
                    case "protocol":
                        protocol = body
                    case "domainMetadata":
                        domains[body["domain"]] = body
                    case "txn":
                        transactions[body["appId"]] = body
        files.update((f.key, f) for f in added)
        live = {name: body for name, body in domains.items() if not body.get("removed")}
        return replace(
            self,
            version=version,
            protocol=protocol,
            metadata=metadata,
            files=files,
            domains=live,
            transactions=transactions,
        )


def key_of(body: Action) -> tuple[str, str]:
    """Identifies an `add` or `remove` entry: a data file with one vector differs from the same file with the next."""
    return str(body["path"]), vector_id(body.get("deletionVector"))


def commit_info(operation: str, **more: str) -> Action:
    """Builds the commit information for people and their tools."""
    now_ms = int(time.time() * 1000)
    own = {"engineInfo": "lakeward", "txnId": str(uuid.uuid4())}
    return {"timestamp": now_ms, "operation": operation, "operationParameters": {}, **own, **more}


def say(said: Mapping[str, str]) -> Action:
    return {"domainMetadata": {"domain": DOMAIN, "configuration": json.dumps(dict(said)), "removed": False}}


def _parse_domain(body: Action) -> dict[str, str]:
    return dict(json.loads(body.get("configuration") or "{}"))
