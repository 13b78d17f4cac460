# SPDX-License-Identifier: Apache-2.0
"""One table, several sides: each with rounds, state and ledger of its own; only the log waits for the slowest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lakeward.config import Config
from lakeward.config.lake import LakeConfig
from lakeward.config.sources import Setting
from lakeward.errors import (
    InvalidAlter,
    InvalidConfig,
    InvalidTable,
    LakeForeign,
    LakeMismatch,
    LakeNotEmpty,
    LakeTableGone,
    LakeUnavailable,
    SideNotFound,
    TableBusy,
)
from lakeward.lake.memory.catalog import MemoryLakeCatalog
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.lake.memory.table import MemoryTable
from lakeward.model import (
    DEFAULT_SIDE,
    Column,
    Content,
    Int64Type,
    OffsetMap,
    RoundId,
    SideName,
    StringType,
    TableInfo,
    TablePath,
    TableState,
)
from lakeward.protocol.heartbeat import HandedOut, Verdict
from lakeward.protocol.operate import ResyncChoice
from lakeward.protocol.tables import AlterTable
from lakeward.spi import LakeCatalog, LakeReader, LakeStorage
from lakeward_testing.lakes.suite import LakeSuite
from tests.kit.world import B0, PATH, CoordinatorWorld, ScriptedJob

FINANCE = SideName("finance")
BOTH = "default, finance"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CoordinatorWorld]:
    made = CoordinatorWorld(tmp_path, named=("finance",))
    yield made
    made.close()


def alter(world: CoordinatorWorld, **properties: str | None) -> tuple[str, ...]:
    changes = {k.replace("__", ".").replace("_", "-"): v for k, v in properties.items()}
    return world.federation.alter(PATH, AlterTable(properties=changes)).warnings


def state(world: CoordinatorWorld, side: SideName) -> TableState:
    return world.coordinator.views.table(PATH, side).state


def run_round(world: CoordinatorWorld, job: ScriptedJob, handed: HandedOut, start: int, stop: int) -> None:
    """What a job does in a round, the lake's own commit included."""
    round_id = RoundId(f"{handed.side}-{handed.epoch}")
    world.commit_to_lake(
        world.hot.load_table(PATH), stop, int(handed.epoch), round_id, handed.generation, lake=handed.side.lake
    )
    job.commit(handed, start, stop, round_id, generation=handed.generation)
    job.finish(handed, round_id)


def due(world: CoordinatorWorld, job: ScriptedJob) -> dict[SideName, HandedOut]:
    world.clock.advance(200)
    return {handed.side: handed for handed in job.take(room=4)}


def test_each_side_has_rounds_ledger_and_offsets_of_its_own(world: CoordinatorWorld) -> None:
    table, job = world.create(table__datalake__lakes=BOTH).table, world.job()
    world.hot.append(PATH, 10)
    handed = due(world, job)
    assert set(handed) == {DEFAULT_SIDE, FINANCE}
    assert not any(h.reads_with for h in handed.values()), "the job did not say that it can"
    run_round(world, job, handed[FINANCE], 0, 10)
    coordinator = world.coordinator
    assert coordinator.committed(PATH, FINANCE).offsets == OffsetMap({B0: 10})
    assert coordinator.committed(PATH, DEFAULT_SIDE).offsets == OffsetMap()
    assert [e.side for e in coordinator.ledger(PATH, FINANCE)] == [FINANCE]
    assert not coordinator.ledger(PATH)
    assert (state(world, FINANCE), state(world, DEFAULT_SIDE)) == (TableState.SCHEDULED, TableState.TIERING)
    assert [t.side for t in coordinator.views.status().tables] == [DEFAULT_SIDE, FINANCE]
    assert {s.name for s in world.coordinator.views.side_figures() if s.table_id == table.table_id} == {
        DEFAULT_SIDE,
        FINANCE,
    }


def reading(job: ScriptedJob, room: int = 4) -> dict[SideName, HandedOut]:
    """What a job gets that reads the log once for several sides."""
    return {handed.side: handed for handed in job.beat(room=room, reads_together=True).tables}


def test_sides_that_are_due_together_are_told_of_each_other(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    handed = reading(world.job(slots=4))
    assert {side: h.reads_with for side, h in handed.items()} == {DEFAULT_SIDE: (FINANCE,), FINANCE: (DEFAULT_SIDE,)}
    assert handed[DEFAULT_SIDE].epoch == handed[FINANCE].epoch == 1


def test_a_side_joins_one_that_is_asked_for(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    job = world.job(slots=4)
    world.hot.append(PATH, 10)
    world.coordinator.ask_now(PATH, FINANCE)
    handed = reading(job)
    assert {side: h.reads_with for side, h in handed.items()} == {DEFAULT_SIDE: (FINANCE,), FINANCE: (DEFAULT_SIDE,)}
    assert state(world, DEFAULT_SIDE) is TableState.TIERING


def test_all_sides_are_asked_for_at_once_or_none_is(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    job = world.job(slots=4)
    world.hot.append(PATH, 10)
    world.coordinator.operations.pause(PATH, FINANCE)
    with pytest.raises(TableBusy, match=r"paused"):
        world.coordinator.ask_all_now(PATH)
    assert reading(job) == {}
    world.coordinator.operations.resume(PATH, FINANCE)
    assert len(world.coordinator.ask_all_now(PATH)) == 2
    handed = reading(job)
    assert {side: h.reads_with for side, h in handed.items()} == {DEFAULT_SIDE: (FINANCE,), FINANCE: (DEFAULT_SIDE,)}


def test_an_old_job_and_one_without_room_get_single_rounds(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    job = world.job(slots=4)
    world.hot.append(PATH, 10)
    world.coordinator.ask_now(PATH, FINANCE)
    (alone,) = job.take(room=4)
    assert (alone.side, alone.reads_with) == (FINANCE, ())
    assert state(world, DEFAULT_SIDE) is TableState.SCHEDULED
    job.fail(alone, given_back=True)
    assert {s: h.reads_with for s, h in reading(job, room=1).items()} == {FINANCE: ()}


def test_sides_of_two_pools_share_nothing(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH, table__datalake__lakes__finance__pool="other")
    job = world.job(slots=4)
    world.hot.append(PATH, 10)
    for side in (DEFAULT_SIDE, FINANCE):
        world.coordinator.ask_now(PATH, side)
    assert {s: h.reads_with for s, h in reading(job).items()} == {DEFAULT_SIDE: ()}


def test_a_side_that_failed_reads_for_itself(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    job = world.job(slots=4)
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    handed = reading(job)
    job.fail(handed[FINANCE])
    job.finish(handed[DEFAULT_SIDE], "r")
    world.hot.append(PATH, 10)
    for side in (DEFAULT_SIDE, FINANCE):
        world.coordinator.ask_now(PATH, side)
    world.clock.advance(10)
    assert {s: h.reads_with for s, h in reading(job).items()} == {DEFAULT_SIDE: (), FINANCE: ()}


def test_a_side_that_fails_or_stands_holds_up_no_other(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    job = world.job()
    world.coordinator.operations.pause(PATH, FINANCE)
    for turn in range(1, 4):
        world.hot.append(PATH, 10)
        (handed,) = due(world, job).values()
        assert handed.side == DEFAULT_SIDE
        run_round(world, job, handed, 10 * turn - 10, 10 * turn)
    world.coordinator.operations.resume(PATH, FINANCE)
    world.coordinator.operations.pause(PATH, DEFAULT_SIDE)
    for _ in range(world.options.quarantine_after):
        world.clock.advance(1_000)
        job.fail(due(world, job)[FINANCE])
    assert state(world, FINANCE) is TableState.QUARANTINED
    world.coordinator.operations.resume(PATH, DEFAULT_SIDE)
    world.hot.append(PATH, 10)
    assert set(due(world, job)) == {DEFAULT_SIDE}


def test_what_is_advised_is_about_the_side_that_failed(world: CoordinatorWorld) -> None:
    """Without the lake's name the command would be about the first side."""
    world.create(table__datalake__lakes="default, finance", table__datalake__changelog="finance")
    world.hot.append(PATH, 3)
    world.clock.advance(200)
    job = world.job(slots=3)
    for table in job.take(3):
        lake_table = f"{PATH}__changelog" if table.side.content is Content.CHANGELOG else str(PATH)
        job.fail(table, words=str(LakeTableGone(table=lake_table)))
    said = {status.side: status.reason or "" for status in world.coordinator.views.status().tables}
    assert len(said) == 3
    for side, words in said.items():
        assert f"`lakeward table restore-lake {PATH} --lake {side}` puts it back" in words


def test_the_log_waits_for_the_slowest_side_that_is_on(world: CoordinatorWorld) -> None:
    table, job = world.create(table__datalake__lakes=BOTH).table, world.job()
    world.hot.append(PATH, 10)
    handed, guard = due(world, job), world.coordinator.retention
    run_round(world, job, handed[DEFAULT_SIDE], 0, 10)
    world.coordinator.read_lake(PATH)
    assert guard.lake_offset(table.table_id, B0) is None
    world.coordinator.operations.pause(PATH, FINANCE)
    assert guard.lake_offset(table.table_id, B0) is None
    alter(world, table__datalake__lakes="default")
    assert guard.lake_offset(table.table_id, B0) == 10
    alter(world, table__datalake__enabled="false")
    assert not guard.lake_enabled(table.table_id)


def test_a_side_is_added_and_removed_while_rows_come_in(world: CoordinatorWorld) -> None:
    table, job = world.create().table, world.job()
    world.hot.append(PATH, 10)
    run_round(world, job, due(world, job)[DEFAULT_SIDE], 0, 10)
    assert not [w for w in alter(world, table__datalake__lakes=BOTH) if "older rows" in w]
    assert world.named["finance"].catalog().exists(PATH)
    world.hot.append(PATH, 5)
    handed = due(world, job)
    run_round(world, job, handed[FINANCE], 0, 15)
    world.hot.append(PATH, 5)
    taken_away = due(world, job)[FINANCE]
    alter(world, table__datalake__lakes="default")
    (told,) = job.work(taken_away).verdicts
    assert told.verdict is Verdict.DROPPED
    assert FINANCE not in {side.name for side, _, _ in world.coordinator.board.leased()}
    with pytest.raises(SideNotFound, match="finance"):
        world.coordinator.views.table(PATH, FINANCE)
    world.restart()
    assert list(world.coordinator.board.find_table(PATH).sides) == [DEFAULT_SIDE]
    alter(world, table__datalake__lakes=BOTH)
    again = world.coordinator.views.table(PATH, FINANCE)
    assert world.coordinator.committed(PATH, FINANCE).offsets == OffsetMap({B0: 15})
    assert (again.state, again.epoch >= taken_away.epoch) == (TableState.SCHEDULED, True)
    assert world.coordinator.ledger(PATH, FINANCE)[0].range.stop == 15
    run_round(world, world.job(), due(world, world.job())[FINANCE], 15, 20)
    assert table.table_id == world.hot.load_table(PATH).table_id


def test_a_side_that_was_away_past_the_ttl_waits_for_an_operator(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    job = world.job()
    world.hot.append(PATH, 10)
    for side, handed in due(world, job).items():
        assert side in (DEFAULT_SIDE, FINANCE)
        run_round(world, job, handed, 0, 10)
    alter(world, table__datalake__lakes="default")
    world.hot.append(PATH, 10)
    run_round(world, job, due(world, job)[DEFAULT_SIDE], 10, 20)
    world.hot.truncate(PATH, B0, 15)
    warnings = alter(world, table__datalake__lakes=BOTH)
    assert any("older rows of db.t are in default alone" in w for w in warnings)
    stopped = world.coordinator.views.table(PATH, FINANCE)
    assert stopped.state is TableState.PAUSED
    assert "lakeward table resync db.t --lake finance" in (stopped.reason or "")
    assert state(world, DEFAULT_SIDE) is TableState.SCHEDULED
    with pytest.raises(TableBusy):
        world.coordinator.operations.resume(PATH, FINANCE)
    world.coordinator.operations.resync(PATH, ResyncChoice.GAP, FINANCE)
    run_round(world, job, due(world, job)[FINANCE], 15, 20)
    assert world.coordinator.committed(PATH, FINANCE).generation == 1
    assert world.coordinator.committed(PATH, DEFAULT_SIDE).generation == 0


def test_readers_get_the_side_that_is_furthest_and_none_that_lacks_rows(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    job, plan = world.job(), world.coordinator.read_plan
    world.hot.append(PATH, 10)
    handed = due(world, job)
    assert plan(PATH).side == DEFAULT_SIDE
    run_round(world, job, handed[FINANCE], 0, 10)
    assert plan(PATH).side == FINANCE
    assert plan(PATH, side=DEFAULT_SIDE).offsets == OffsetMap()
    run_round(world, job, handed[DEFAULT_SIDE], 0, 10)
    assert plan(PATH).side == DEFAULT_SIDE
    world.hot.append(PATH, 10)
    run_round(world, job, due(world, job)[DEFAULT_SIDE], 10, 20)
    alter(world, table__datalake__lakes="default")
    world.hot.truncate(PATH, B0, 15)
    alter(world, table__datalake__lakes=BOTH)
    world.coordinator.operations.resync(PATH, ResyncChoice.GAP, FINANCE)
    world.hot.append(PATH, 10)
    run_round(world, job, due(world, job)[FINANCE], 15, 30)
    assert plan(PATH).side == DEFAULT_SIDE


def test_a_read_takes_the_next_side_where_a_lake_does_not_answer(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    job = world.job()
    world.hot.append(PATH, 10)
    for handed in due(world, job).values():
        run_round(world, job, handed, 0, 10)
    assert isinstance(world.lake, MemoryLakeStorage)
    del world.lake.lake.tables[PATH]
    assert world.coordinator.read_plan(PATH).side == FINANCE


def test_a_table_that_one_lake_cannot_take_is_made_in_none(world: CoordinatorWorld) -> None:
    other = replace(LakeSuite().table_info(columns={"other": "STRING"}), path=PATH)
    world.named["finance"].catalog().create(other)
    with pytest.raises(LakeMismatch, match="column other"):
        world.create(table__datalake__lakes=BOTH)
    assert not world.lake.catalog().exists(PATH)


def test_a_table_that_one_lake_has_of_another_owner_is_made_in_none(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="finance")
    world.commit_to_lake(world.hot.load_table(PATH), 1, lake="finance")
    world.federation.drop(PATH)
    with pytest.raises(LakeNotEmpty):
        world.create(table__datalake__lakes=BOTH)
    assert not world.lake.catalog().exists(PATH)


def test_a_change_that_one_lake_refuses_reaches_none(world: CoordinatorWorld) -> None:
    table = world.create(table__datalake__lakes=BOTH).table
    later = Column(name="later", type=Int64Type())
    world.named["finance"].catalog().add_columns(table, [replace(later, type=StringType())])
    change = AlterTable(add_columns=(later.to_json(),), properties={"memory.x": "1"})
    with pytest.raises(LakeMismatch, match="column later"):
        world.federation.alter(PATH, change)
    world.lake.catalog().validate(table)
    assert "x" not in memory_table(world.lake).properties
    assert world.hot.load_table(PATH) == table


def test_a_lake_that_cannot_be_added_leaves_the_others_as_they_were(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="finance")
    world.commit_to_lake(world.hot.load_table(PATH), 1, lake="finance")
    world.federation.drop(PATH)
    world.create()
    with pytest.raises(LakeForeign):
        alter(world, table__datalake__lakes=BOTH, memory__x="1")
    assert "x" not in memory_table(world.lake).properties


def test_a_property_of_a_format_that_no_lake_of_the_table_has_is_kept(world: CoordinatorWorld) -> None:
    """Whoever takes another format changes nothing else."""
    world.create(iceberg__x="1", memory__x="1")
    alter(world, iceberg__x="2")
    assert world.hot.load_table(PATH).descriptor.properties["iceberg.x"] == "2"
    assert memory_table(world.lake).properties["x"] == "1"


def test_a_table_that_has_such_a_property_goes_on(world: CoordinatorWorld) -> None:
    table = world.create().table
    had = {**table.descriptor.properties, "iceberg.x": "1"}
    world.hot.alter_table(table.with_descriptor(replace(table.descriptor, properties=had)))
    alter(world, memory__x="2")
    assert world.hot.load_table(PATH).descriptor.properties["iceberg.x"] == "1"
    alter(world, iceberg__x=None)
    assert "iceberg.x" not in world.hot.load_table(PATH).descriptor.properties


class LakeThatIsDown(MemoryLakeStorage):
    """Its catalog is there, and each call to it ends in nothing."""

    def catalog(self) -> LakeCatalog:
        return CatalogThatIsDown(self.lake)

    def open_reader(self, table: TableInfo) -> LakeReader:
        raise LakeUnavailable(lake="memory", what="read", reason="nobody is there")


class CatalogThatIsDown(MemoryLakeCatalog):
    def check(self) -> None:
        raise LakeUnavailable(lake="memory", what="call", reason="nobody is there")

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        self.check()

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        self.check()

    def exists(self, path: TablePath) -> bool:
        raise LakeUnavailable(lake="memory", what="call", reason="nobody is there")


def test_a_lake_that_does_not_answer_is_called_by_its_name(world: CoordinatorWorld) -> None:
    up = world.named["finance"]
    assert isinstance(up, MemoryLakeStorage)
    down = LakeThatIsDown(up.lake)
    world.named["finance"] = down
    with pytest.raises(LakeUnavailable, match="lake finance does not answer"):
        world.create(table__datalake__lakes=BOTH)
    world.create()
    with pytest.raises(LakeUnavailable, match="lake finance does not answer"):
        alter(world, table__datalake__lakes=BOTH)
    world.named["finance"] = up
    alter(world, table__datalake__lakes=BOTH)
    world.named["finance"] = down
    with pytest.raises(LakeUnavailable, match="lake finance does not answer"):
        alter(world, memory__x="1")
    world.restart()
    assert world.coordinator.views.status().lakes["finance"].startswith("lake finance does not answer")
    assert "lake finance does not answer" in (world.coordinator.views.table(PATH, FINANCE).reason or "")


def memory_table(lake: LakeStorage) -> MemoryTable:
    assert isinstance(lake, MemoryLakeStorage)
    return lake.lake.table(PATH)


def test_what_a_lake_and_a_side_say_of_themselves_counts_there_alone(world: CoordinatorWorld) -> None:
    finance = LakeConfig(
        name="finance",
        format="memory",
        enabled=True,
        settings={},
        defaults={"table.datalake.freshness": "1 h", "table.datalake.pool": "slow"},
    )
    world.set_options(lakes={**world.options.lakes, "finance": finance})
    world.create(table__datalake__lakes=BOTH)
    shown = {t.side: t for t in world.coordinator.views.status().tables}
    assert (shown[FINANCE].freshness_ms, shown[FINANCE].pool) == (3_600_000, "slow")
    assert (shown[DEFAULT_SIDE].freshness_ms, shown[DEFAULT_SIDE].pool) == (180_000, "default")
    alter(world, table__datalake__lakes__finance__freshness="2 h")
    assert world.coordinator.views.table(PATH, FINANCE).freshness_ms == 7_200_000
    assert world.coordinator.views.table(PATH).freshness_ms == 180_000


def test_columns_and_properties_go_to_every_side(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    column = {"name": "more", "type": "STRING", "nullable": True}
    added = AlterTable(add_columns=(column,), properties={"memory.x": "1"})
    world.federation.alter(PATH, added)
    for storage in (world.lake, *world.named.values()):
        assert isinstance(storage, MemoryLakeStorage)
        lake_table = storage.lake.tables[PATH]
        assert "more" in [c.name for c in lake_table.columns]


def test_bad_sides_are_refused_in_words(world: CoordinatorWorld) -> None:
    with pytest.raises(InvalidTable, match=r"no such lake is configured; there are: default, finance"):
        world.create(table__datalake__lakes="nope")
    with pytest.raises(InvalidTable, match="named twice"):
        world.create(table__datalake__lakes="finance, finance")
    world.create(table__datalake__lakes=BOTH)
    for none in ("", " ", None):
        with pytest.raises(InvalidAlter, match=r"one side at least.*table\.datalake\.enabled"):
            alter(world, table__datalake__lakes=none)
    with pytest.raises(InvalidTable, match="no such lake"):
        alter(world, table__datalake__lakes="default, nope")
    assert list(world.coordinator.board.find_table(PATH).sides) == [DEFAULT_SIDE, FINANCE]


def test_two_lakes_that_are_one_place_are_refused(world: CoordinatorWorld) -> None:
    world.named["finance"] = world.lake
    with pytest.raises(InvalidTable, match="one place"):
        world.create(table__datalake__lakes=BOTH)
    assert not world.lake.catalog().exists(PATH)
    world.create("u")
    with pytest.raises(InvalidTable, match="one place"):
        path = replace(PATH, table="u")
        world.federation.alter(path, AlterTable(properties={"table.datalake.lakes": BOTH}))


def test_a_lake_that_is_configured_no_more_stops_the_start(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes=BOTH)
    before = world.options
    with pytest.raises(InvalidConfig, match=r"table db\.t is in lake finance, which is not configured"):
        world.set_options(lakes={"default": world.options.lakes["default"]})
    world.set_options(lakes=before.lakes)
    assert state(world, FINANCE) is TableState.SCHEDULED


def test_a_new_table_keeps_the_servers_default_lake(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path, named=("finance",))
    only = {"finance": world.options.lakes["finance"]}
    old = world.create("old").table
    assert "table.datalake.lakes" not in old.descriptor.properties
    world.set_options(lakes={**only, "default": world.options.lakes["default"]})
    made = world.create().table
    assert made.descriptor.properties["table.datalake.lakes"] == "finance"
    assert world.coordinator.views.table(PATH).side == FINANCE
    assert world.coordinator.views.table(old.path).side == DEFAULT_SIDE
    with pytest.raises(InvalidConfig, match=r'table db\.old is in lake default, .* needs: datalake\.format = "memory"'):
        world.set_options(lakes=only)
    world.set_options(lakes=only, config=Config([Setting("datalake.enabled", "false", "argument")]))
    cut_off = world.coordinator.views.table(old.path)
    assert cut_off.state is TableState.DISABLED
    assert "datalake.enabled = false" in cut_off.blocked
    assert world.coordinator.retention.lake_enabled(old.table_id), "its log is kept"
    assert state(world, FINANCE) is TableState.SCHEDULED
    world.close()
