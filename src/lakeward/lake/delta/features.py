# SPDX-License-Identifier: Apache-2.0
"""Protocol and table features: what readers and writers of a table must know, named only where it is used."""

from __future__ import annotations

from lakeward.lake.delta.actions import Action, DeltaTableState
from lakeward.lake.delta.columns import has_time_without_zone

_VECTORS, _DOMAIN, _TIME = "deletionVectors", "domainMetadata", "timestampNtz"
VECTORS_KEY = "delta.enableDeletionVectors"


def protocol_of(schema_string: str, *, has_vectors: bool) -> Action:
    """Readers of a table without vectors, and without times that have no zone, need know nothing new."""
    shared = [*([_VECTORS] if has_vectors else []), *([_TIME] if has_time_without_zone(schema_string) else [])]
    protocol: Action = {"minReaderVersion": 3 if shared else 1, "minWriterVersion": 7}
    if shared:
        protocol["readerFeatures"] = shared
    return {**protocol, "writerFeatures": [*shared, _DOMAIN]}


def with_features(state: DeltaTableState, metadata: Action) -> list[Action]:
    """The metadata, and the protocol where it asks for more than there is."""
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
    return (
        [{"metaData": metadata}]
        if is_enough
        else [{"protocol": {**have, **versions, **merged}}, {"metaData": metadata}]
    )


def with_vectors(state: DeltaTableState) -> list[Action]:
    """What a commit with vectors needs beside them: nothing, once a table may have them."""
    if state.properties.get(VECTORS_KEY) == "true":
        return []
    return with_features(state, {**state.metadata, "configuration": {**state.properties, VECTORS_KEY: "true"}})
