# SPDX-License-Identifier: Apache-2.0
"""Protocol and table features: those that readers and writers of a table need, named only if it uses them."""

from __future__ import annotations

from lakeward.lake.delta.meta.actions import MAPPING_KEY, Action, DeltaTableState

_VECTORS, _DOMAIN, _TIME, _WIDENING = "deletionVectors", "domainMetadata", "timestampNtz", "typeWidening"
_TIME_TYPE = '"timestamp_ntz"'
_NOT_NULL = "invariants"
"""Delta's own code refuses a table with NOT NULL columns, as ours have, that does not name this feature."""

VECTORS_KEY, WIDENING_KEY = "delta.enableDeletionVectors", "delta.enableTypeWidening"
BY_NAME = "name"
_SWITCHES = {
    VECTORS_KEY: ("true", _VECTORS),
    MAPPING_KEY: (BY_NAME, "columnMapping"),
    WIDENING_KEY: ("true", _WIDENING),
}
"""Property of a table -> the value that needs a feature, and the feature."""

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
"""Properties that other engines expect every commit to honour, ours included."""


def why_not(lake_key: str) -> str | None:
    """Returns the reason why a Delta property may not be set; None: it may be set."""
    if lake_key.startswith(_RELIED_ON):
        return "rounds rely on it"
    return "rounds do not keep what it promises other engines" if lake_key.startswith(_NOT_KEPT) else None


def protocol_of(metadata: Action) -> Action:
    """Builds the protocol. Readers need no new feature for a table without vectors, without times that have no zone and
    without changed columns."""
    properties = metadata.get("configuration") or {}
    shared = [feature for key, (value, feature) in _SWITCHES.items() if properties.get(key) == value]
    shared += [_TIME] if _TIME_TYPE in metadata["schemaString"] else []
    protocol: Action = {"minReaderVersion": 3 if shared else 1, "minWriterVersion": 7}
    if shared:
        protocol["readerFeatures"] = shared
    return {**protocol, "writerFeatures": [*shared, _DOMAIN, _NOT_NULL]}


def with_features(state: DeltaTableState, metadata: Action) -> list[Action]:
    """Returns the metadata if it changes, and the protocol if it needs more features than the table has."""
    needed = protocol_of(metadata)
    have = state.protocol
    merged = {
        key: sorted({*(have.get(key) or ()), *needed[key]})
        for key in ("readerFeatures", "writerFeatures")
        if key in needed
    }
    versions = {k: max(have[k], needed[k]) for k in ("minReaderVersion", "minWriterVersion")}
    is_enough = versions.items() <= have.items() and all(set(merged[k]) <= set(have.get(k) or ()) for k in merged)
    actions: list[Action] = [] if is_enough else [{"protocol": {**have, **versions, **merged}}]
    return actions if metadata == state.metadata else [*actions, {"metaData": metadata}]


def features_due(state: DeltaTableState, *, has_vectors: bool) -> list[Action]:
    """Returns the actions that a commit needs besides its files; none, once a table names the features that it uses."""
    if not has_vectors:
        return with_features(state, state.metadata)
    return with_features(state, {**state.metadata, "configuration": {**state.properties, VECTORS_KEY: "true"}})
