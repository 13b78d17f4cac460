# SPDX-License-Identifier: Apache-2.0
"""Protocol and table features: what readers and writers of a table must know, named only where it is used."""

from __future__ import annotations

from lakeward.lake.delta.meta.actions import MAPPING_KEY, Action, DeltaTableState

_VECTORS, _DOMAIN, _TIME, _WIDENING = "deletionVectors", "domainMetadata", "timestampNtz", "typeWidening"
_TIME_TYPE = '"timestamp_ntz"'
_NOT_NULL = "invariants"
"""Delta's own code refuses a table that has columns which are never null, as ours have, and does not name it."""

VECTORS_KEY, WIDENING_KEY = "delta.enableDeletionVectors", "delta.enableTypeWidening"
BY_NAME = "name"
_SWITCHES = {
    VECTORS_KEY: ("true", _VECTORS),
    MAPPING_KEY: (BY_NAME, "columnMapping"),
    WIDENING_KEY: ("true", _WIDENING),
}
"""Property of a table -> its value that needs a feature, and the feature."""

KNOWN_FEATURES = frozenset({_DOMAIN, _TIME, _NOT_NULL, "appendOnly", *(feature for _, feature in _SWITCHES.values())})
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


def protocol_of(metadata: Action) -> Action:
    """Readers of a table without vectors, without times that have no zone and without changed columns need know nothing
    new."""
    properties = metadata.get("configuration") or {}
    shared = [feature for key, (value, feature) in _SWITCHES.items() if properties.get(key) == value]
    shared += [_TIME] if _TIME_TYPE in metadata["schemaString"] else []
    protocol: Action = {"minReaderVersion": 3 if shared else 1, "minWriterVersion": 7}
    if shared:
        protocol["readerFeatures"] = shared
    return {**protocol, "writerFeatures": [*shared, _DOMAIN, _NOT_NULL]}


def with_features(state: DeltaTableState, metadata: Action) -> list[Action]:
    """The metadata, where it changes, and the protocol where it asks for more than there is."""
    wanted = protocol_of(metadata)
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
