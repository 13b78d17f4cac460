# SPDX-License-Identifier: Apache-2.0
"""Daft, and DuckDB through SQLAlchemy as Superset has it, in an environment of its own: JSON lines in (`{"daft": table,
"columns": [...]}` or `{"sql": ...}`), JSON lines out.

Run by that environment's Python: `python py_engines.py URL EXTENSIONS`. Nothing of ours is importable there.
"""

import json
import sys
from typing import Any

import daft
from pyiceberg.catalog import load_catalog
from sqlalchemy import create_engine, event, text
from sqlalchemy.pool import NullPool


def main(url: str, extensions: list[str]) -> None:
    engine = create_engine("duckdb:///:memory:", poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def attach(connection: Any, record: Any) -> None:
        for file in extensions:
            connection.execute(f"LOAD '{file}'")
        connection.execute(f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")

    def answer(order: dict[str, Any]) -> list[dict[str, Any]]:
        if "sql" in order:
            with engine.connect() as connection:
                return [dict(row._mapping) for row in connection.execute(text(order["sql"]))]
        catalog = load_catalog("live", type="rest", uri=url, warehouse="live")
        frame = daft.read_iceberg(catalog.load_table(order["daft"])).select(*order["columns"])
        return frame.to_pylist()  # type: ignore[no-any-return]

    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps({"rows": answer(json.loads(line))}), flush=True)
        except Exception as error:  # noqa: BLE001 - the other side decides
            print(json.dumps({"error": f"{type(error).__name__}: {str(error)[:2000]}"}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
