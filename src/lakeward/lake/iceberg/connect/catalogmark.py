# SPDX-License-Identifier: Apache-2.0
"""A SQL catalog's own mark in the names of the metadata files it writes, so that it knows its leftovers from another
catalog's files.

A table that is registered in two catalogs has the metadata files of both in one folder; neither may delete the other's.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from sqlalchemy import Column, Engine, MetaData, String, Table, insert, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

_MARKS = Table(
    "lakeward_catalogs",
    MetaData(),
    Column("catalog_name", String(255), primary_key=True),
    Column("mark", String(8), nullable=False),
)


def load_mark(engine: Engine, catalog_name: str) -> str | None:
    """Eight hexadecimal digits, chosen once for a catalog and kept in its database; None where that may not
    be changed.
    """
    known = select(_MARKS.c.mark).where(_MARKS.c.catalog_name == catalog_name)
    try:
        with suppress(SQLAlchemyError):  # another process may make it at this moment
            _MARKS.create(engine, checkfirst=True)
        with suppress(IntegrityError), engine.begin() as connection:
            if connection.execute(known).scalar() is None:
                connection.execute(insert(_MARKS).values(catalog_name=catalog_name, mark=uuid.uuid4().hex[:8]))
        with engine.begin() as connection:
            return str(connection.execute(known).scalar_one())
    except SQLAlchemyError:
        return None
