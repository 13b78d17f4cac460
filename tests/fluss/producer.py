# SPDX-License-Identifier: Apache-2.0
"""Writes to a Fluss cluster through pyfluss, an independent client, in a process of its own: it can hang, and abort at
exit.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.fluss.steps import (
    DATABASE,
    Append,
    Delete,
    DropTable,
    KvScan,
    LakeSnapshotOf,
    MakePartition,
    MakeTable,
    Step,
    Upsert,
    UpsertRange,
)


async def _run(bootstrap: str, steps: Sequence[Step], limit_s: int, login: Sequence[str]) -> None:
    """Each answer is written as soon as it is there: who waits for this process sees how far it got."""
    import fluss

    connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": bootstrap, **_login(*login)}))
    admin = connection.get_admin()
    for step in steps:
        answer = await asyncio.wait_for(_step(fluss, connection, admin, step), limit_s)
        sys.stdout.buffer.write(pickle.dumps(answer))
        sys.stdout.buffer.flush()


def _login(user: str | None = None, password: str = "") -> dict[str, str]:
    if user is None:
        return {}
    plain = {"security.protocol": "sasl", "security.sasl.mechanism": "PLAIN"}
    return {**plain, "security.sasl.username": user, "security.sasl.password": password}


async def _step(fluss: Any, connection: Any, admin: Any, step: Step) -> Any:
    path = fluss.TablePath(DATABASE, step.name if isinstance(step, MakeTable) else step.table)
    match step:
        case MakeTable():
            await admin.create_database(DATABASE, None, True)
            await admin.create_table(path, _descriptor(fluss, step), False)
        case MakePartition():
            await admin.create_partition(path, dict(step.spec), False)
        case DropTable():
            await admin.drop_table(path, False)
        case LakeSnapshotOf():
            found = await admin.get_latest_lake_snapshot(path)
            return found.snapshot_id, {(b.partition_id, b.bucket_id): o for b, o in found.table_buckets_offset.items()}
        case KvScan():
            return await _scan_kv(fluss, await connection.get_table(path), admin, path, step.limit)
        case Append():
            began = time.time()
            writer = (await connection.get_table(path)).new_append().create_writer()
            if step.is_by_row:
                handles = [writer.append(row) for _ in range(step.repeat) for row in step.rows.to_pylist()]
            else:
                cuts = range(0, step.rows.num_rows, step.chunk)
                slices = [step.rows.slice(at, step.chunk) for _ in range(step.repeat) for at in cuts]
                handles = [writer.write_arrow_batch(part) for part in slices]
            await _acknowledged(writer, handles)
            return began
        case UpsertRange():
            writer = (await connection.get_table(path)).new_upsert().create_writer()
            for number in range(step.start, step.stop, step.step):
                writer.upsert((number, *step.template))
            await writer.flush()
        case Upsert() | Delete():
            writer = (await connection.get_table(path)).new_upsert().create_writer()
            rows = step.rows if isinstance(step, Upsert) else step.keys
            await _acknowledged(
                writer, [(writer.upsert if isinstance(step, Upsert) else writer.delete)(dict(row)) for row in rows]
            )
    return None


async def _scan_kv(fluss: Any, table: Any, admin: Any, path: Any, limit: int) -> list[dict[str, Any]]:
    info = table.get_table_info()
    buckets = [fluss.TableBucket(info.table_id, n) for n in range(info.num_buckets)]
    if info.is_partitioned():
        parts = await admin.list_partition_infos(path)
        buckets = [
            fluss.TableBucket.with_partition(info.table_id, part.partition_id, bucket.bucket_id)
            for part in parts
            for bucket in buckets
        ]
    scans = [table.new_scan().limit(limit).create_bucket_batch_scanner(bucket) for bucket in buckets]
    return [row for scan in scans for row in (await scan.to_arrow()).to_pylist()]


async def _acknowledged(writer: Any, handles: Sequence[Any]) -> None:
    """pyfluss's flush waits for batches and drops the errors of those that failed: only the handles tell."""
    await writer.flush()
    for handle in handles:
        await handle.wait()


def _descriptor(fluss: Any, step: MakeTable) -> Any:
    lake = {"table.datalake.enabled": "true", "table.datalake.freshness": step.freshness}
    keys = {"partition_keys": list(step.partition_keys), "bucket_keys": list(step.bucket_keys)}
    schema = fluss.Schema(step.schema, list(step.primary_key) or None)
    return fluss.TableDescriptor(
        schema,
        bucket_count=step.buckets,
        properties={**lake, **step.properties},
        **{name: columns for name, columns in keys.items() if columns},
    )


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], pickle.loads(sys.stdin.buffer.read()), int(sys.argv[2]), sys.argv[3:]))
    os._exit(0)  # pyfluss aborts now and then while the interpreter ends
