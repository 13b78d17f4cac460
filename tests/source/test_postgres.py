# SPDX-License-Identifier: Apache-2.0
"""Postgres into tables, on a real server: every case that a change feed can lose."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from lakeward.errors import SourceStopped
from tests.source.conftest import Pair

soak = pytest.mark.soak


def test_a_snapshot_and_changes_make_equal_tables(pair: Pair) -> None:
    """Inserts, updates, deletes, changes of keys, several changes of a key in one transaction, unchanged TOAST."""
    pair.sql(
        "CREATE TABLE orders (id bigint PRIMARY KEY, name text, amount numeric(10, 2), doc text)",
        "ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO orders SELECT g, 'n' || g, g / 3.0, repeat(g::text, 3000) FROM generate_series(1, 500) g",
    )
    pair.ingest()
    assert pair.check("orders", "id, name, amount, doc") == 500
    pair.sql(
        "UPDATE orders SET name = 'changed' WHERE id <= 10",
        "DELETE FROM orders WHERE id BETWEEN 11 AND 20",
        "BEGIN; UPDATE orders SET id = id + 1000, name = 'moved' WHERE id BETWEEN 21 AND 30; "
        "UPDATE orders SET name = 'twice' WHERE id = 1021; COMMIT",
        "BEGIN; INSERT INTO orders VALUES (5000, 'a', 1, 'x'); UPDATE orders SET name = 'b' WHERE id = 5000; "
        "DELETE FROM orders WHERE id = 5000; INSERT INTO orders VALUES (5000, 'c', NULL, ''); COMMIT",
        "BEGIN; DELETE FROM orders WHERE id = 40; INSERT INTO orders (id) VALUES (40); COMMIT",
    )
    pair.ingest()
    assert pair.check("orders", "id, name, amount, doc") == 491


@soak
def test_a_key_that_moves_keeps_its_unchanged_toast(pair: Pair) -> None:
    pair.sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, doc text)",
        "ALTER TABLE t ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO t SELECT g, g, repeat('x', 9000) || g FROM generate_series(1, 5) g",
    )
    pair.ingest()
    pair.sql(
        "UPDATE t SET n = 0 WHERE id = 1",
        "UPDATE t SET id = 11 WHERE id = 1",
        "UPDATE t SET id = 12, doc = repeat('y', 9000) WHERE id = 2",
        "BEGIN; UPDATE t SET id = 13 WHERE id = 3; UPDATE t SET id = 23 WHERE id = 13; COMMIT",
        "BEGIN; UPDATE t SET id = 100 WHERE id = 4; UPDATE t SET id = 4 WHERE id = 5; "
        "UPDATE t SET id = 5 WHERE id = 100; COMMIT",
    )
    pair.ingest()
    assert pair.check("t", "id, n, doc") == 5


@soak
def test_truncate_in_the_middle_of_a_transaction(pair: Pair) -> None:
    pair.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 300) g")
    pair.ingest()
    pair.sql("BEGIN; INSERT INTO t VALUES (1000, 1); TRUNCATE t; INSERT INTO t VALUES (1, 7), (2, 8); COMMIT")
    pair.ingest()
    assert pair.stored("t", "id, n") == [(1, 7), (2, 8)]
    pair.sql("TRUNCATE t")
    pair.ingest()
    assert pair.stored("t", "id, n") == []


@soak
def test_rows_larger_than_16_mb(pair: Pair) -> None:
    pair.sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, doc text)",
        "INSERT INTO t SELECT 1, 1, string_agg(md5(g::text), '') FROM generate_series(1, 600000) g",
    )
    pair.ingest()
    pair.sql(
        "INSERT INTO t SELECT 2, 2, string_agg(md5((-g)::text), '') FROM generate_series(1, 700000) g",
        "UPDATE t SET n = 9 WHERE id = 1",
    )
    pair.ingest()
    assert pair.check("t", "id, n, doc") == 2


@soak
def test_columns_that_are_added_renamed_dropped_and_widened(pair: Pair) -> None:
    pair.sql("CREATE TABLE t (id int PRIMARY KEY, n int, gone text)", "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
    pair.ingest()
    pair.sql(
        "INSERT INTO t VALUES (3, 3, 'c')",
        "ALTER TABLE t ADD COLUMN extra text DEFAULT 'old', ADD COLUMN plain text",
        "INSERT INTO t VALUES (4, 4, 'd', 'new', 'p')",
        "ALTER TABLE t RENAME COLUMN n TO number",
        "ALTER TABLE t DROP COLUMN gone",
        "UPDATE t SET number = 30 WHERE id = 3",
        "ALTER TABLE t ALTER number TYPE bigint",
        "INSERT INTO t VALUES (5, 5000000000, 'e', NULL)",
    )
    pair.ingest()
    assert pair.check("t", "id, number, extra, plain") == 5
    assert set(pair.client.show_table(f"{pair.name}.t").schema.names) == {"id", "number", "gone", "extra", "plain"}


@soak
def test_a_column_that_cannot_follow_stops_the_source(pair: Pair) -> None:
    pair.sql("CREATE TABLE t (id int PRIMARY KEY, n bigint)", "INSERT INTO t VALUES (1, 1)")
    pair.ingest()
    pair.sql("ALTER TABLE t ALTER n TYPE boolean USING n > 0", "INSERT INTO t VALUES (2, true)")
    with pytest.raises(SourceStopped, match="cannot follow"):
        pair.ingest()
    assert pair.stored("t", "id, n") == [(1, 1)]


@soak
def test_tables_that_come_later_and_names_with_capitals(pair: Pair) -> None:
    pair.sql("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    pair.ingest()
    pair.sql('CREATE TABLE "Caps" ("Id" int PRIMARY KEY, "order" text)', "INSERT INTO \"Caps\" VALUES (1, 'x')")
    pair.ingest()
    assert pair.stored("Caps", "Id, order") == [(1, "x")]
    pair.sql('UPDATE "Caps" SET "order" = \'y\'')
    pair.ingest()
    assert pair.stored("Caps", "Id, order") == [(1, "y")]


@soak
def test_every_type(pair: Pair) -> None:
    pair.sql(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN price AS numeric(8, 2) CHECK (value >= 0)",
        "CREATE TABLE t (id int PRIMARY KEY, fixed numeric(12, 3), free numeric, ints int[], texts text[], m mood, "
        "r int4range, j jsonb, at timestamptz, local timestamp, d date, p price, b bytea, u uuid, f float8, "
        "yes boolean, t time, i interval, ip inet, prices price[])",
        "ALTER TABLE t REPLICA IDENTITY FULL",
    )
    values = (
        "12.5, 123456789012345678901234567890123456789012345.5, '{1,NULL,3}', ARRAY['a', 'b \"q\" , \\ {}', NULL, ''], "
        "'happy', '[1,5)', '{\"a\": 1}', '2024-03-31 03:00:00.123456+02', '2024-01-01 00:00:00', '2024-02-29', 9.99, "
        "'\\x00ff', '6b1f6e3c-5a1b-4a7e-8f4d-6a1c1b1e2f3a', 'Infinity', true, '12:34:56.789', '1 day 2 hours', "
        "'10.0.0.1/8', '{1.5}'"
    )
    pair.sql(f"INSERT INTO t VALUES (1, {values})", "INSERT INTO t (id) VALUES (2)")
    pair.sql("INSERT INTO t (id, at, local, d, ints) VALUES (3, 'infinity', '-infinity', 'infinity', '{}')")
    pair.ingest()
    pair.sql(f"INSERT INTO t VALUES (11, {values})", "INSERT INTO t (id) VALUES (12)")
    pair.sql("INSERT INTO t (id, at, local, d, ints) VALUES (13, 'infinity', '-infinity', 'infinity', '{}')")
    pair.ingest()
    rows = {row["id"]: row for row in pair.client.read(f"{pair.name}.t").to_table().to_pylist()}
    for first in (1, 11):
        row, empty, endless = rows[first], rows[first + 1], rows[first + 2]
        assert row["fixed"] == Decimal("12.500")
        assert row["free"] == "123456789012345678901234567890123456789012345.5"
        assert (row["ints"], row["texts"]) == ([1, None, 3], ["a", 'b "q" , \\ {}', None, ""])
        assert (row["m"], row["r"], row["j"]) == ("happy", "[1,5)", '{"a": 1}')
        assert row["at"] == datetime(2024, 3, 31, 1, 0, 0, 123456, tzinfo=UTC)
        assert (row["local"], row["d"], row["p"]) == (datetime(2024, 1, 1), date(2024, 2, 29), Decimal("9.99"))
        assert (row["b"], row["f"], row["yes"]) == (b"\x00\xff", float("inf"), True)
        assert (row["i"], row["ip"], row["prices"]) == ("P1DT2H", "10.0.0.1/8", [Decimal("1.50")])
        assert all(value is None for name, value in empty.items() if name != "id")
        assert endless["at"] == datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
        assert (endless["local"], endless["d"], endless["ints"]) == (datetime(1, 1, 1), date(9999, 12, 31), [])


@soak
def test_a_value_that_does_not_fit_stops_with_a_way_out(pair: Pair) -> None:
    pair.sql("CREATE TABLE t (id int PRIMARY KEY, n numeric(6, 2))", "INSERT INTO t VALUES (1, 1), (2, 'NaN')")
    with pytest.raises(SourceStopped, match=r"--text public\.t\.n"):
        pair.ingest()
    pair.client.server.ask("DELETE", f"/api/v1/sources/{pair.name}")
    pair.client.drop_table(f"{pair.name}.t")
    pair.options["text"] = "public.t.n"
    pair.ingest()
    assert pair.stored("t", "id, n") == [(1, "1.00"), (2, "NaN")]


@soak
def test_a_table_without_a_key_is_refused_before_anything_is_made(pair: Pair) -> None:
    pair.sql("CREATE TABLE t (n int)")
    with pytest.raises(SourceStopped, match="no primary key"):
        pair.ingest()
    pair.sql(
        "CREATE UNIQUE INDEX u ON t (n)",
        "ALTER TABLE t ALTER n SET NOT NULL",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX u",
    )
    pair.sql("INSERT INTO t VALUES (1)")
    pair.ingest()
    pair.sql("UPDATE t SET n = 2")
    pair.ingest()
    assert pair.stored("t", "n") == [(2,)]


@soak
def test_a_lost_slot_stops_and_a_new_snapshot_makes_the_tables_equal(pair: Pair) -> None:
    pair.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 50) g")
    run = pair.ingest()
    slot = run.status.source.state["slot"]
    pair.sql(f"SELECT pg_drop_replication_slot('{slot}')", "DELETE FROM t WHERE id <= 25", "UPDATE t SET n = 0")
    with pytest.raises(SourceStopped, match=r"is gone.*--resnapshot"):
        pair.ingest()
    pair.ingest({"resnapshot": True})
    assert pair.check("t", "id, n") == 25
    pair.sql("INSERT INTO t VALUES (99, 99)")
    pair.ingest()
    assert pair.check("t", "id, n") == 26


@soak
def test_a_slot_past_the_stored_rows_stops(pair: Pair) -> None:
    """As after a restore of an older backup of the server: changes in between are gone from the slot."""
    pair.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 1)")
    run = pair.ingest()
    older = dict(run.status.source.state)
    pair.sql("UPDATE t SET n = 2")
    pair.ingest()
    with pytest.raises(SourceStopped, match="past the rows that are stored"):
        pair.ingest(older)


@soak
def test_an_idle_table_lets_the_log_go(pair: Pair) -> None:
    """The log grows by another database; the slot follows although no row of its tables changes."""
    pair.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    run = pair.ingest()
    slot = run.status.source.state["slot"]
    pair.postgres.run(
        "CREATE TABLE noise AS SELECT g, repeat('x', 200) FROM generate_series(1, 50000) g", "DROP TABLE noise"
    )
    (end,) = pair.sql("SELECT pg_current_wal_lsn()")[0]
    pair.ingest()
    lag = f"SELECT confirmed_flush_lsn >= '{end}'::pg_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"
    assert pair.sql(lag) == [(True,)]


@soak
def test_a_partitioned_table_is_one_table(pair: Pair) -> None:
    """Rows of all partitions, of one that comes later, and rows that move between them; truncate of one and of all."""
    pair.sql(
        "CREATE TABLE m (id int, day date, n int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE m_1 PARTITION OF m FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
        "CREATE TABLE m_2 PARTITION OF m FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
        "INSERT INTO m SELECT g, '2026-01-01'::date + g % 50, g FROM generate_series(1, 300) g",
    )
    pair.ingest()
    assert pair.check("m", "id, day, n") == 300
    assert [path for path in pair.client.list_tables() if path.startswith(f"{pair.name}.")] == [f"{pair.name}.m"]
    pair.sql(
        "UPDATE m SET n = -n WHERE id <= 20",
        "UPDATE m SET day = day + 31 WHERE day < '2026-01-10'",
        "DELETE FROM m WHERE id BETWEEN 30 AND 60",
        "CREATE TABLE m_3 PARTITION OF m FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')",
        "INSERT INTO m VALUES (1000, '2026-03-05', 7)",
        "UPDATE m SET day = '2026-03-06' WHERE id = 1000",
    )
    pair.ingest()
    assert pair.check("m", "id, day, n") == 270
    pair.sql("TRUNCATE m", "INSERT INTO m VALUES (1, '2026-01-01', 1)")
    pair.ingest()
    assert pair.check("m", "id, day, n") == 1
