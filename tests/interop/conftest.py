# SPDX-License-Identifier: Apache-2.0
"""Tables as rounds of ours make them, for other engines to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.lake.iceberg.meta.types import to_arrow_schema
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import BUCKET, OFFSET, TIMESTAMP, Bucket
from lakeward_testing.scripted_log import Row, ScriptedLog
from tests.kit.iceberg.folder import folder_lake, folder_options
from tests.kit.iceberg.server import serving

Rows = list[tuple[Bucket, int, Row]]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[IcebergLakeStorage]:
    with folder_lake(tmp_path) as made:
        yield made


@pytest.fixture
def as_rows() -> Callable[[pa.Table, IcebergLakeStorage, ScriptedLog], Rows]:
    """What an engine gave, as `ScriptedLog.expected` spells it. Columns must be the lake table's, in its order."""

    def convert(found: pa.Table, lake: IcebergLakeStorage, log: ScriptedLog) -> Rows:
        schema = to_arrow_schema(lake.connection.load(log.table.path).schema())
        assert found.column_names == schema.names
        rows = []
        for row in found.cast(pa.schema([f.with_nullable(True) for f in schema])).to_pylist():
            number, offset = row.pop(BUCKET), row.pop(OFFSET)
            assert row.pop(TIMESTAMP) is not None
            partition = "$".join(str(row[k]) for k in log.table.descriptor.partition_keys)
            rows.append((Bucket(partition, number), offset, row))
        return sorted(rows, key=lambda r: r[:2])

    return convert


@dataclass(frozen=True)
class Served:
    """A catalog server of this session, and the options under which it keeps its tables."""

    url: str
    options: dict[str, str]


TOKENS = {"reader": "read", "writer": "write", "tiering": "job", "boss": "admin"}
"""Name -> role of the tokens that the guarded server knows; a token's secret is its name with -secret."""


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    options = folder_options(folder)
    with serving(options) as url:
        yield Served(url, options)


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guarded")
    options = folder_options(folder)
    secret = {"s3.secret-access-key": "hidden", "s3.access-key-id": "hidden", "s3.endpoint": "http://open"}
    with serving({**options, **secret}, [f"{name}:{role}:{name}-secret" for name, role in TOKENS.items()]) as url:
        yield Served(url, options)
