# SPDX-License-Identifier: Apache-2.0
"""Data files and their vectors as the plug point describes them, and back."""

from __future__ import annotations

from urllib.parse import quote

from lakeward.lake.delta.meta.actions import AddFile
from lakeward.lake.delta.meta.vector import Vector, vector_path
from lakeward.model.schema import BUCKET
from lakeward.spi.lakefile import LakeDelete, LakeFile

_INLINE = "inline:"
"""A vector that is in the log itself has no path."""

_SAFE = "/:"


def deletes_of(file: AddFile, root: str) -> tuple[LakeDelete, ...]:
    vector = file.vector
    if vector is None:
        return ()
    return (
        LakeDelete(
            path=vector_path(root, vector) or f"{_INLINE}{vector['pathOrInlineDv']}",
            content="vector",
            record_count=file.deleted,
            sequence=file.vector_since,
            content_offset=vector.get("offset"),
            content_size=vector["sizeInBytes"],
        ),
    )


def add_of(file: LakeFile) -> AddFile:
    """What can be read again: its rows, its vector, its partition."""
    values = dict(file.partition)
    if file.bucket is not None:
        values[BUCKET] = str(file.bucket.number)
    vector = {"deletionVector": _vector(file.deletes[0])} if file.deletes else {}
    return AddFile({"path": quote(file.path, _SAFE), "size": file.size_bytes, "partitionValues": values, **vector})


def _vector(delete: LakeDelete) -> Vector:
    is_inline = delete.path.startswith(_INLINE)
    return {
        "storageType": "i" if is_inline else "p",
        "pathOrInlineDv": delete.path.removeprefix(_INLINE) if is_inline else quote(delete.path, _SAFE),
        "offset": delete.content_offset,
        "sizeInBytes": delete.content_size,
        "cardinality": delete.record_count,
    }
