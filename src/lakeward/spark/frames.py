# SPDX-License-Identifier: Apache-2.0
"""DataFrames and views over union reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lakeward.errors import SparkUnsupported
from lakeward.read.arrow import request_of
from lakeward.read.plan import AsOf
from lakeward.read.predicate import Filter
from lakeward.read.spark.batch import read_frame
from lakeward.read.spark.options import find_server
from lakeward.spi import PROCESS_PLUGINS, Plugin

LEASE_S = 900.0
"""A DataFrame is read after it was planned: nothing under it expires for a quarter of an hour."""


def read(
    spark: Any,
    table: str,
    *,
    server: str | None = None,
    fluss: str | None = None,
    mode: str = "union",
    as_of: AsOf | None = None,
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,
    at_least: object | None = None,
    system_columns: bool = False,
    lease_s: float = LEASE_S,
    hot: str = "embedded",
    cut: str | None = None,
) -> Any:
    """The table as a DataFrame: lake history plus hot tail, as of now. `mode`: union, lake or hot. `fluss`: host:port
    of an Apache Fluss server, for a table of that cluster.

    `as_of`: a lake snapshot id or a moment: history alone. `cut`: the moment of a cut, together with its other tables.
    `at_least`: a write's token, to see that write. `filter`:
    tuples such as `[("id", "=", 5)]`; one on partition or bucket keys leaves out whole files while the read is planned,
    which a filter on the DataFrame cannot. The plan holds for `lease_s` seconds; read again for newer rows. How fresh
    it is: `df.lakeward_bound`."""
    plugin = (
        PROCESS_PLUGINS.hot(Plugin(name=hot, options={"server": find_server(server)}))
        if fluss is None
        else PROCESS_PLUGINS.hot(Plugin(name="fluss", options={"bootstrap": fluss}))
    )
    request = request_of(
        table,
        columns=columns,
        filter=filter,
        mode=mode,
        as_of=as_of,
        at_least=at_least,
        system_columns=system_columns,
        cut=cut,
    )
    frame, opened = read_frame(spark, plugin, replace(request, lease_s=lease_s))
    opened.lease.detach()
    frame.lakeward_bound = opened.bound
    return frame


def view(spark: Any, table: str, *, name: str | None = None, **options: Any) -> Any:
    """Registers `read(...)` as a temporary view for SQL; by default under the table's own name. Returns the
    DataFrame.
    """
    frame = read(spark, table, **options)
    frame.createOrReplaceTempView(name or table.rpartition(".")[2])
    return frame


def register(spark: Any) -> None:
    """Makes `format("lakeward")` known to this session, and lets Spark push filters into it. Raises `SparkUnsupported`
    on PySpark 3.5, which has no data sources in Python: `read` and `view` work there, streaming does not."""
    if not hasattr(spark, "dataSource"):
        raise SparkUnsupported(
            what=f"format('lakeward') on PySpark {spark.version}",
            reason="data sources in Python came with PySpark 4.0; lakeward.spark.read(spark, ...) reads here too, and "
            "streams need PySpark 4.1 or newer",
        )
    from lakeward.spark.source import LakewardDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(LakewardDataSource)
