# SPDX-License-Identifier: Apache-2.0
"""Protocol and table features: what readers and writers of a table must know, named only where it is used."""

from __future__ import annotations

from lakeward.lake.delta.meta.actions import Action, DeltaTableState

_VECTORS, _DOMAIN, _TIME = "deletionVectors", "domainMetadata", "timestampNtz"
_TIME_TYPE = '"timestamp_ntz"'
_NOT_NULL = "invariants"
"""Delta's own code refuses a table that has columns which are never null, as ours have, and does not name it."""

VECTORS_KEY = "delta.enableDeletionVectors"
_RELIED_ON = (VECTORS_KEY, "delta.columnMapping.", "delta.appendOnly", "lakeward.primary-key")
_NOT_KEPT = (
    "delta.enableChangeDataFeed",
    "delta.enableRowTracking",
    "delta.enableInCommitTimestamps",
    "delta.enableIcebergCompat",
    "delta.enableTypeWidening",
    "delta.universalFormat.",
    "delta.checkpointPolicy",
    "delta.constraints.",
    "delta.feature.",
)
"""What other engines take for promises of every commit, ours included."""


def why_not(lake_key: str) -> str | None:
    """Why a property of the Delta table is not set, in words."""
    if lake_key.startswith(_RELIED_ON):
        return "rounds rely on it"
    return "rounds do not keep what it promises other engines" if lake_key.startswith(_NOT_KEPT) else None


def protocol_of(schema_string: str, *, has_vectors: bool) -> Action:
    """Readers of a table without vectors, and without times that have no zone, need know nothing new."""
    shared = [*([_VECTORS] if has_vectors else []), *([_TIME] if _TIME_TYPE in schema_string else [])]
    protocol: Action = {"minReaderVersion": 3 if shared else 1, "minWriterVersion": 7}
    if shared:
        protocol["readerFeatures"] = shared
    return {**protocol, "writerFeatures": [*shared, _DOMAIN, _NOT_NULL]}


def with_features(state: DeltaTableState, metadata: Action) -> list[Action]:
    """The metadata, where it changes, and the protocol where it asks for more than there is."""
    has_vectors = (metadata.get("configuration") or {}).get(VECTORS_KEY) == "true"
    wanted = protocol_of(metadata["schemaString"], has_vectors=has_vectors)
    have = state.protocol
    merged = {
        key: sorted({*(have.get(key) or ()), *wanted[key]})
        for key in ("readerFeatures", "writerFeatures")
        if key in wanted
    }
    versions = {k: max(have[k], wanted[k]) for k in ("minReaderVersion", "minWriterVersion")}
    is_enough = versions.items() <= have.items() and all(set(merged[k]) <= set(have.get(k) or ()) for k in merged)
    actions: list[Action] = [] if is_enough else [{"protocol": {**have, **versions, **merged}}]
    return actions if metadata == state.metadata else [*actions, {"metaData": metadata}]


def features_due(state: DeltaTableState, *, has_vectors: bool) -> list[Action]:
    """What a commit needs beside its files: nothing, once a table names what it uses."""
    if not has_vectors:
        return with_features(state, state.metadata)
    return with_features(state, {**state.metadata, "configuration": {**state.properties, VECTORS_KEY: "true"}})
