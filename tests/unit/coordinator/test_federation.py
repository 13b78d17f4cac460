# SPDX-License-Identifier: Apache-2.0
"""DDL over lake and hot store: order, refusals, adoption, switching the lake on and off."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.bucketing import assign_buckets
from lakeward.errors import (
    InvalidAlter,
    InvalidRequest,
    InvalidTable,
    LakeMetadataGone,
    LakeMismatch,
    LakeNotEmpty,
    LakeUnavailable,
    LakewardError,
    TableAlreadyExists,
    TableBusy,
    UnknownOption,
)
from lakeward.model import (
    BucketFunction,
    Column,
    DataType,
    Float64Type,
    Int32Type,
    Int64Type,
    OffsetMap,
    Schema,
    StringType,
    TableDescriptor,
    TablePath,
    TableState,
)
from lakeward.protocol.operate import AdoptTable, ResyncChoice
from lakeward.protocol.tables import AlterTable, CreateTable
from lakeward.spi import load_lake
from tests.kit.world import B0, PATH, CoordinatorWorld

S = TableState
ENABLED = "table.datalake.enabled"


def switch(world: CoordinatorWorld, enabled: bool) -> None:
    world.federation.alter(PATH, AlterTable(properties={ENABLED: str(enabled).lower()}))


def run_round(world: CoordinatorWorld, start: int, stop: int, round_id: str) -> None:
    """A whole round: lake, coordinator, finish."""
    world.clock.advance(200)
    job = world.job()
    (table,) = job.take()
    world.commit_to_lake(world.hot.load_table(PATH), stop, epoch=table.epoch, round_id=round_id)  # type: ignore[arg-type]
    job.commit(table, start, stop, round_id)
    job.finish(table, round_id)


def test_the_lake_comes_first_and_a_crash_between_is_taken_up(world: CoordinatorWorld) -> None:
    created = world.create().table
    world.hot.drop_table(PATH)
    world.restart()
    assert world.lake.catalog().exists(PATH)
    again = world.create().table
    assert again.table_id != created.table_id
    with pytest.raises(TableAlreadyExists):
        world.create()


def test_a_mismatch_is_a_diff_and_leaves_the_hot_store_alone(world: CoordinatorWorld) -> None:
    world.commit_to_lake(world.create().table, 1)
    world.federation.drop(PATH)
    other = TableDescriptor(schema=Schema(columns=(Column(name="id", type=Int32Type(nullable=False)),)))
    with pytest.raises(LakeMismatch) as caught:
        world.federation.create(CreateTable(path=PATH, descriptor=other))
    assert "column id" in caught.value.diff
    assert world.hot.load_tables() == []


@pytest.mark.parametrize(
    ("key", "columns"), [("k", {"k": Float64Type(nullable=False)}), ("", {"v": Int32Type(), "V": Int32Type()})]
)
def test_a_table_that_engines_cannot_read_is_refused_before_the_lake_is_asked(
    world: CoordinatorWorld, key: str, columns: dict[str, DataType]
) -> None:
    schema = Schema(columns=tuple(Column(name=n, type=t) for n, t in columns.items()))
    wrong = TableDescriptor(schema=schema, primary_key=(key,) if key else ())
    with pytest.raises(InvalidTable):
        world.federation.create(CreateTable(path=PATH, descriptor=wrong))
    assert not world.lake.catalog().exists(PATH)


def test_an_alter_that_would_change_nothing_or_break_engines_is_refused(world: CoordinatorWorld) -> None:
    table = world.create().table
    name = table.schema.names[0].upper()
    for change, wrong in (
        (AlterTable(properties={"bucket.num": "9"}), InvalidAlter),
        (AlterTable(properties={"bucket.key": "id"}), InvalidAlter),
        (AlterTable(add_columns=({"name": name, "type": "INT"},)), InvalidTable),
    ):
        with pytest.raises(wrong):
            world.federation.alter(PATH, change)
    assert world.hot.load_table(PATH) == table


def test_drop_never_touches_the_lake_and_a_new_life_never_takes_old_offsets(world: CoordinatorWorld) -> None:
    first = world.create().table
    world.hot.append(PATH, 10)
    run_round(world, 0, 10, "r1")
    world.federation.drop(PATH)
    assert world.lake.catalog().table_id(PATH) == first.table_id
    with pytest.raises(LakeNotEmpty):
        world.create()
    adopted = world.create(adopt=True).table
    assert adopted.table_id == first.table_id
    assert world.coordinator.committed(PATH).offsets == OffsetMap({B0: 10})
    assert world.hot.append(PATH).start == 10, "an offset never names two rows"


def test_an_adopted_table_goes_on_with_the_ledger_and_the_epochs_of_its_earlier_life(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH, 10)
    run_round(world, 0, 10, "r1")
    world.hot.append(PATH, 5)
    world.clock.advance(600)
    (handed,) = world.job().take()
    world.federation.drop(PATH)
    world.create(adopt=True)
    entries = [(str(e.kind), str(e.range)) for e in world.coordinator.ledger(PATH)]
    assert entries == [("round", "[0, 10)"), ("gap", "[0, 10)")], "once; and the new log holds none of them"
    world.hot.append(PATH, 5)
    world.clock.advance(600)
    (again,) = world.job().take()
    assert again.epoch > handed.epoch, "a round of the earlier life may still be under way"


def test_adopting_needs_a_descriptor_where_the_hot_side_is_gone(world: CoordinatorWorld) -> None:
    table = world.create().table
    world.hot.append(PATH, 4)
    run_round(world, 0, 4, "r1")
    world.federation.drop(PATH)
    with pytest.raises(InvalidRequest):
        world.federation.adopt(PATH, AdoptTable())
    answer = world.federation.adopt(PATH, AdoptTable(descriptor=table.descriptor))
    assert answer.table.table_id == table.table_id
    assert world.federation.adopt(PATH, AdoptTable()).created is False


def test_alter_goes_to_the_lake_first_and_keeps_fixed_things_fixed(world: CoordinatorWorld) -> None:
    world.create()
    column = {"name": "w", "type": "INT", "comment": None}
    after = world.federation.alter(
        PATH, AlterTable(add_columns=(column,), properties={"table.datalake.freshness": "7 s"})
    ).table
    assert (after.schema.schema_id, after.schema.names) == (2, ("id", "v", "w"))
    world.lake.catalog().validate(after)
    assert world.coordinator.views.table(PATH).freshness_ms == 7_000
    for refused in (
        AlterTable(add_columns=({"name": "x", "type": "INT NOT NULL"},)),
        AlterTable(properties={"table.datalake.format": "iceberg"}),
    ):
        with pytest.raises(InvalidAlter):
            world.federation.alter(PATH, refused)


def test_enabling_later_creates_the_lake_table_and_tiers_what_is_there(world: CoordinatorWorld) -> None:
    world.create(table__datalake__enabled="false")
    assert not world.lake.catalog().exists(PATH)
    world.hot.append(PATH, 5)
    world.clock.advance(600)
    assert world.job().take() == []
    assert world.coordinator.views.table(PATH).state is S.DISABLED
    switch(world, True)
    run_round(world, 0, 5, "r1")
    assert world.coordinator.committed(PATH).offsets == OffsetMap({B0: 5})


def test_disabling_keeps_the_data_and_enabling_again_goes_on(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH, 5)
    run_round(world, 0, 5, "r1")
    switch(world, False)
    world.federation.alter(PATH, AlterTable(add_columns=({"name": "w", "type": "INT"},)))
    world.hot.append(PATH, 5)
    world.clock.advance(600)
    assert world.job().take() == []
    assert not world.coordinator.retention.lake_enabled(world.hot.load_table(PATH).table_id)
    switch(world, True)
    assert world.coordinator.committed(PATH).offsets == OffsetMap({B0: 5})
    run_round(world, 5, 10, "r2")


def test_enabling_past_the_ttl_waits_for_a_choice_and_records_the_gap(world: CoordinatorWorld) -> None:
    table = world.create().table
    world.hot.append(PATH, 5)
    run_round(world, 0, 5, "r1")
    switch(world, False)
    world.hot.append(PATH, 20)
    world.hot.truncate(PATH, B0, 12)
    switch(world, True)
    status = world.coordinator.views.table(PATH)
    assert status.state is S.PAUSED
    assert "the lake ends at 5 and the log begins at 12; accept the gap" in (status.reason or "")
    with pytest.raises(TableBusy):
        world.coordinator.operations.resume(PATH)
    world.coordinator.operations.resync(PATH, ResyncChoice.GAP)
    world.clock.advance(1)
    job = world.job()
    (handed,) = job.take()
    assert (handed.resync, handed.generation) == (True, 1)
    world.commit_to_lake(table, 25, epoch=handed.epoch, round_id="r2", generation=1)  # type: ignore[arg-type]
    job.commit(handed, 12, 25, "r2", generation=1)
    entries = [(str(e.kind), str(e.range)) for e in world.coordinator.ledger(PATH) if e.generation == 1]
    assert entries == [("adopted", "[0, 5)"), ("gap", "[5, 12)"), ("round", "[12, 25)")]


def test_a_pk_table_cannot_have_a_gap(world: CoordinatorWorld) -> None:
    world.create(pk=True)
    with pytest.raises(InvalidRequest):
        world.coordinator.operations.resync(PATH, ResyncChoice.GAP)


def test_a_restored_log_table_goes_on_above_the_lake_and_says_so(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH, 10)
    run_round(world, 0, 10, "r1")
    world.hot.forget_rows(PATH, B0, 6)
    world.restart()
    gaps = [str(e.range) for e in world.coordinator.ledger(PATH) if e.kind == "gap"]
    assert gaps == ["[6, 10)"]
    assert world.hot.append(PATH).start == 10


def test_a_restored_pk_table_stops_for_a_resync(world: CoordinatorWorld) -> None:
    world.create(pk=True)
    world.hot.append(PATH, 10)
    run_round(world, 0, 10, "r1")
    world.hot.forget_rows(PATH, B0, 6)
    world.restart()
    status = world.coordinator.views.table(PATH)
    assert status.state is S.PAUSED
    assert "load what is newer in the lake with `lakeward table resync db.t`" in (status.reason or "")


def test_a_restored_server_takes_no_writes_before_the_lake_has_answered(world: CoordinatorWorld) -> None:
    world.create()
    world.set_options(restored=True)
    world.restart(read_lakes=False)
    assert PATH in world.hot.paused
    world.coordinator.lakes.read_unseen()
    assert PATH not in world.hot.paused


def test_a_start_that_ended_before_the_lake_answered_pauses_the_next_no_longer_than_needed(
    world: CoordinatorWorld,
) -> None:
    """The pause is on disk, and the next start is an ordinary one."""
    world.create()
    world.set_options(restored=True)
    world.restart(read_lakes=False)
    assert PATH in world.hot.paused
    world.set_options(restored=False)
    assert PATH not in world.hot.paused


def test_a_catalog_from_an_older_copy_stops_the_writes_until_the_lake_is_read(world: CoordinatorWorld) -> None:
    world.create()
    lake = world.lake
    world.lake = FailingLake(LakeMetadataGone(table=str(PATH), file="file:///old"))  # type: ignore[assignment]
    world.restart()
    assert "lakeward server --restored" in world.hot.paused[PATH]
    assert "lakeward server --restored" in (world.coordinator.views.table(PATH).reason or "")
    world.lake = lake
    world.coordinator.lakes.read_unseen()
    assert PATH not in world.hot.paused


def test_a_lake_that_does_not_answer_is_reported_and_the_hot_store_works_on(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH, 3)
    lake = world.lake
    world.lake = FailingLake(LakeUnavailable(lake="memory", what="call", reason="nobody is there"))  # type: ignore[assignment]
    world.restart()
    assert "does not answer" in world.coordinator.views.status().lakes["memory"]
    assert "does not answer" in (world.coordinator.views.table(PATH).reason or "")
    world.hot.append(PATH, 3)
    world.lake = lake
    world.coordinator.upkeep.run()
    world.coordinator.upkeep.read_lakes()
    assert world.coordinator.views.status().lakes["memory"] == ""
    world.clock.advance(200)
    assert len(world.job().take()) == 1


class FailingLake:
    """Every call ends in this error."""

    def __init__(self, error: LakewardError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> object:
        raise self._error


def test_the_bucket_function_is_fixed_at_create_even_while_the_lake_is_off(
    world: CoordinatorWorld, tmp_path: Path
) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": tmp_path.as_uri()}
    world.lake = load_lake("iceberg", catalog)
    world.set_options(lake_format="iceberg", lake_enabled=False)
    columns = (Column(name="id", type=Int64Type(nullable=False)), Column(name="s", type=StringType(nullable=False)))
    one = TableDescriptor(schema=Schema(columns=columns), bucket_keys=("id",), bucket_count=8)
    table = world.federation.create(CreateTable(path=PATH, descriptor=one)).table
    assert table.descriptor.bucket_function is BucketFunction.ICEBERG
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.types import LongType

    ids = list(range(-50, 50))
    rows = pa.table({"id": ids, "s": [""] * len(ids)})
    transform = BucketTransform(8).transform(LongType())
    assert assign_buckets(rows, table.descriptor).tolist() == [transform(i) for i in ids]
    both = TableDescriptor(schema=Schema(columns=columns), bucket_keys=("id", "s"), bucket_count=8)
    path = TablePath("db", "composite")
    assert (
        world.federation.create(CreateTable(path=path, descriptor=both)).table.descriptor.bucket_function
        is BucketFunction.FLUSS
    )


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("freshness", "did you mean 'table.datalake.freshness'?"),
        ("tabel.datalake.freshness", "did you mean 'table.datalake.freshness'?"),
        ("table.datalake.freshnes", "did you mean 'table.datalake.freshness'?"),
        ("log.ttl", "did you mean 'table.log.ttl'?"),
        ("colour", "there is no option 'colour'"),
    ],
)
def test_a_misspelled_property_is_refused_with_the_nearest(world: CoordinatorWorld, key: str, words: str) -> None:
    world.create()
    with pytest.raises(UnknownOption) as refused:
        world.federation.alter(PATH, AlterTable(properties={key: "10 s"}))
    assert words in refused.value.message
    assert key not in world.hot.load_table(PATH).descriptor.properties


def test_properties_of_ones_own_have_a_prefix(world: CoordinatorWorld) -> None:
    world.create()
    world.federation.alter(PATH, AlterTable(properties={"team.owner": "ann", "iceberg.write.summary": "x"}))
    world.federation.alter(PATH, AlterTable(properties={"team.owner": None}))
    assert "team.owner" not in world.hot.load_table(PATH).descriptor.properties
