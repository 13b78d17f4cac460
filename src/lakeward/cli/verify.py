# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify`: the certificate of a table, or of all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.cluster import Fluss, FlussUser, check_no_server, open_fluss
from lakeward.cli.connection import open_client
from lakeward.cli.output import Json, Lake, Server, counted, moment, print_json, print_rows, size
from lakeward.cli.source import verify_postgres
from lakeward.config.tables import lakes_in_use
from lakeward.errors import InvalidInput, InvalidRequest, InvalidTable, LakewardError, UnsupportedType
from lakeward.model import SideName, TablePath, changelog_side, named_sides
from lakeward.protocol.codec import encode

if TYPE_CHECKING:
    from lakeward.spi import HotPlugin
    from lakeward.verify import Certificate
    from lakeward.verify.table import Checked

NOT_CHECKED = 6
"""The exit code where nothing wrong was seen, and nothing of some table was looked at."""


def register(app: typer.Typer) -> None:
    app.command("verify")(verify)


def verify(
    table: Annotated[str | None, typer.Argument(help="One table; without it all that are in the lake.")] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Compare the rows themselves with the hot store, where it still has them.")
    ] = False,
    sample: Annotated[
        float,
        typer.Option("--sample", min=0.0, max=1.0, help="With --deep: the share of rows whose values are compared."),
    ] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Which sample; the same seed picks the same rows.")] = 0,
    spark: Annotated[
        str | None, typer.Option("--spark", help="Run the checks on this Spark master, for big tables.")
    ] = None,
    postgres: Annotated[
        str | None, typer.Option("--postgres", help="Compare this source's tables with Postgres at one LSN.")
    ] = None,
    offline: Annotated[
        str | None,
        typer.Option("--offline", help="The warehouse: check its files without a server."),
    ] = None,
    lake: Lake = None,
    fluss: Fluss = None,
    fluss_user: FlussUser = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Checks that every row is in the lake exactly once, against ledger and hot store. Exit code 1 when anything is
    wrong, 6 when nothing of a table could be checked: no lake is on for it, or its lake does not answer.

    Example: lakeward verify shop.orders --deep"""
    from lakeward.verify import verify_table

    if postgres is not None:
        verify_postgres(postgres, server, as_json)
        return
    if offline is not None:
        _verify_offline(offline, table, as_json=as_json)
        return
    if fluss is not None:
        check_no_server(server, lake)
    with _open_plugin(server, fluss, fluss_user) as (plugin, tables):
        paths = tables() if table is None else [TablePath.parse(table)]
        runner = None
        if spark is not None:
            from lakeward.verify.spark import spark_runner

            runner = spark_runner(spark, plugin)
        check = partial(verify_table, plugin, deep=deep or sample < 1, sample=sample, seed=seed, run=runner)
        with _progress() as show:
            certificates = [
                _certificate(path, partial(check, side=side, progress=partial(show, path)))
                for path in paths
                for side in _sides(plugin, path, lake)
            ]
    _report(certificates, as_json=as_json)


def _report(certificates: Sequence[Certificate], *, as_json: bool) -> None:
    """Prints them. Raises `Exit` with the exit code of the worst."""
    from lakeward.verify.certificate import CertificateVerdict

    if as_json:
        print_json([{**encode(c), "totals": c.totals, "verdict": c.verdict, "holds": c.holds} for c in certificates])
    else:
        for certificate in certificates:
            print_certificate(certificate)
        if len(certificates) != 1:
            print(_summary(certificates))
    verdicts = {c.verdict for c in certificates}
    if CertificateVerdict.BROKEN in verdicts:
        raise typer.Exit(1)
    if CertificateVerdict.NOT_CHECKED in verdicts:
        raise typer.Exit(NOT_CHECKED)


def _verify_offline(warehouse: str, table: str | None, *, as_json: bool) -> None:
    from lakeward.verify.offline import check

    if table is None:
        raise InvalidRequest(what="verify --offline", reason="name the table too")
    try:
        report = check(warehouse, str(TablePath.parse(table)))
    except FileNotFoundError as error:
        raise InvalidRequest(
            what="verify --offline", reason=f"{error}; only Iceberg tables can be checked so"
        ) from error
    if as_json:
        print_json(report)
    else:
        verdict = "DOES NOT HOLD" if report["findings"] else "partly checked" if report["unchecked"] else "holds"
        counts = f"{report['snapshots']} snapshots, {report['certificates']} certificates"
        print(f"{table}: {verdict}; {counted(report['rows'], 'row')}, {counts}")
        for words in (*report["findings"], *(f"not checked: {reason}" for reason in report["unchecked"])):
            print(f"  {words}")
    if report["findings"]:
        raise typer.Exit(1)
    if not report["certificates"]:
        raise typer.Exit(NOT_CHECKED)


@contextmanager
def _progress() -> Iterator[Callable[[TablePath, Checked], None]]:
    """A line on standard error while buckets are checked; silent where that is no terminal."""
    from rich.console import Console

    console = Console(file=sys.stderr)
    with console.status("verifying") if console.is_terminal else nullcontext() as status:

        def show(path: TablePath, checked: Checked) -> None:
            if status is not None:
                status.update(f"{path}: {checked.buckets:,} of {checked.of:,} buckets, {checked.rows:,} rows")

        yield show


def _summary(certificates: Sequence[Certificate]) -> str:
    from lakeward.verify.certificate import CertificateVerdict

    if not certificates:
        return "no table is in a lake: nothing was checked"
    rows = sum(c.rows for c in certificates)
    parts = []
    for verdict, words in (
        (CertificateVerdict.BROKEN, "DO NOT HOLD"),
        (CertificateVerdict.NOT_CHECKED, "NOT CHECKED"),
        (CertificateVerdict.PARTLY_CHECKED, "partly checked"),
    ):
        if tables := [c.table for c in certificates if c.verdict is verdict]:
            parts.append(f"{len(tables)} {words}: {', '.join(tables)}")
    return f"{counted(len(certificates), 'table')}, {counted(rows, 'row')}: {'; '.join(parts) or 'all hold'}"


def _sides(plugin: HotPlugin, path: TablePath, lake: str | None) -> Sequence[SideName | None]:
    """The named one, or all of the table's."""
    if lake is not None:
        return [SideName.parse(lake)]
    try:
        properties = plugin.store().load_table(path).descriptor.properties
        changes = changelog_side(properties)
        return [*(named_sides(properties) or [None]), *([changes] if changes else ())]
    except LakewardError:  # the check itself will say it
        return [None]


@contextmanager
def _open_plugin(
    server: str | None, fluss: str | None, user: str | None
) -> Iterator[tuple[HotPlugin, Callable[[], Sequence[TablePath]]]]:
    """The hot store's plugin, and what its tables are."""
    if fluss is None:
        with open_client(server) as client:
            embedded = client.plugin
            yield embedded, lambda: [p for p in map(TablePath.parse, client.list_tables()) if _has_lake(embedded, p)]
        return
    with open_fluss(fluss, user) as plugin:
        yield plugin, lambda: [p for p in plugin.store().list_tables() if _is_tiered(plugin, p)]


def _has_lake(plugin: HotPlugin, path: TablePath) -> bool:
    """Made for the hot store alone, a table has nothing to verify."""
    try:
        return bool(lakes_in_use(plugin.store().load_table(path).descriptor.properties))
    except LakewardError:  # the check itself will say it
        return True


def _is_tiered(plugin: HotPlugin, path: TablePath) -> bool:
    from lakeward.config import options

    try:
        properties = plugin.store().load_table(path).descriptor.properties
    except InvalidInput:  # the check itself will say it
        return True
    return properties.get(options.TABLE_DATALAKE_ENABLED.key, "false").lower() == "true"


def _certificate(path: TablePath, verify: Callable[[TablePath], Certificate]) -> Certificate:
    """One table that cannot be checked (its lake does not answer, its log is not read) keeps no other from being
    checked.
    """
    from lakeward.errors import LakeError, LakeUnavailable, UnsafeLake
    from lakeward.verify.certificate import Certificate, Finding, FindingKind

    try:
        return verify(path)
    except LakeUnavailable as error:
        return Certificate(table=str(path), table_id="", snapshot_id=None, deep=False, beyond=(str(error),))
    except (LakeError, InvalidTable, UnsafeLake, UnsupportedType) as error:
        finding = Finding(kind=FindingKind.UNREADABLE, words=str(error))
        return Certificate(table=str(path), table_id="", snapshot_id=None, deep=False, findings=(finding,))


def print_certificate(certificate: Certificate) -> None:
    totals = certificate.totals
    lake = "" if certificate.side is None else f" ({certificate.side})"
    print(f"{certificate.table}{lake}: {certificate.verdict}")
    print(
        f"  checked {moment(certificate.checked_at_ms)} UTC, lake snapshot {certificate.snapshot_id or '-'}, table "
        f"{certificate.table_id}"
    )
    print(
        f"  {counted(totals['rows'], 'row')} in {counted(len(certificate.buckets), 'bucket')}, "
        f"gaps {totals['gaps']}, duplicates {totals['duplicates']}, altered {totals['altered']}"
    )
    if certificate.deep:
        print(f"  {certificate.compared:,} rows compared value by value with the hot store")
    print_rows(
        ("  bucket", "range", "rows"),
        [(f"  {b.bucket}", str(b.range), b.rows) for b in certificate.buckets],
        empty="  no buckets",
    )
    for finding in certificate.all_findings:
        where = f"bucket {finding.bucket}: " if finding.bucket is not None else ""
        print(f"  {finding.kind}: {where}{finding.words}")
        if finding.offsets:
            print(f"    first offsets: {', '.join(map(str, finding.offsets))}")
        for file in finding.files:
            print(f"    file: {file}")
    for words in (*certificate.notes, *(f"not checked: {b}" for b in certificate.beyond)):
        print(f"  {words}")
    print(f"  orphan files: {certificate.orphan_files} ({size(certificate.orphan_bytes)})")
