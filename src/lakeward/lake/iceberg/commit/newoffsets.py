# SPDX-License-Identifier: Apache-2.0
"""The offsets that a new snapshot carries: in its summary, or in a file beside it where they are too long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.meta.manifests import ManifestTarget
from lakeward.lake.iceberg.meta.summary import INLINE_LIMIT, summary_of
from lakeward.model.offsets import OffsetMap
from lakeward.model.table import TableInfo
from lakeward.spi.flussoffsets import encode_fluss_offsets, find_partitions
from lakeward.spi.snapshotkeys import OFFSETS_KEY, OWN_OFFSETS_KEY


def write_offsets(ground: CommitGround, target: ManifestTarget, table: TableInfo, offsets: OffsetMap) -> dict[str, str]:
    """In the Fluss setting `fluss-offsets` is the path that Fluss gave for this commit (`CommitProperties.extra`); a
    commit that moves nothing copies the last one."""
    partitions = find_partitions(table.descriptor)
    if partitions is None:
        return {OFFSETS_KEY: _text(target, offsets.to_json())}
    newest = ground.reconciled.newest
    path = None if newest is None else summary_of(newest).get(OFFSETS_KEY)
    own = _text(target, encode_fluss_offsets(table.table_id, offsets, partitions))
    return {OWN_OFFSETS_KEY: own, **({} if path is None else {OFFSETS_KEY: path})}


def _text(target: ManifestTarget, body: Mapping[str, Any]) -> str:
    text = json.dumps(body, separators=(",", ":"))
    if len(text) <= INLINE_LIMIT:
        return text
    path = target.new_path("offsets", "json")
    with target.io.new_output(path).create(overwrite=True) as out:
        out.write(text.encode())
    return path
