# SPDX-License-Identifier: Apache-2.0
"""Entry point of the Paimon lake: opens `LakeStorage` with the configured options, which are those of Paimon's
catalogs.

Paimon's library is imported when the lake is opened: jobs import all plugins beforehand, and most never open this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakeward.errors import InvalidTable, UnsafeLake
from lakeward.lake.warehouse import WarehousePlugin
from lakeward.model import TableInfo

if TYPE_CHECKING:
    from lakeward.lake.paimon.storage import PaimonLakeStorage


class PaimonLakePlugin(WarehousePlugin):
    def fluss_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Translates a Fluss cluster's options, whose names are the same. Keys are not among them, as Fluss does not
        send them."""
        kind = options.get("metastore", "filesystem")
        if kind != "filesystem":
            reason = f"its catalog is {kind!r}, and filesystem catalogs alone are served; leave it to Fluss's Flink job"
            raise UnsafeLake(lake=self.name, reason=reason)
        return dict(options)

    def check_fluss_table(self, table: TableInfo) -> None:
        try:
            from lakeward.lake.paimon.meta.mapping import check_columns, why_not
        except ModuleNotFoundError as error:
            reason = f"{error.name} is not installed: pip install 'lakeward[paimon]', or leave it to Fluss's Flink job"
            raise UnsafeLake(lake=self.name, reason=reason) from error
        check_columns(str(table.path), table.schema.columns)
        for key, value in table.descriptor.properties.items():
            if why := why_not(key, value):
                raise InvalidTable(table=str(table.path), field=key, value=value, reason=why)


def _load(options: Mapping[str, str]) -> PaimonLakeStorage:
    from lakeward.lake.paimon.meta.connection import PaimonConnection
    from lakeward.lake.paimon.storage import PaimonLakeStorage

    return PaimonLakeStorage(PaimonConnection(options))


load = PaimonLakePlugin(
    "paimon",
    _load,
    libraries=("pypaimon",),
    commits=["*/snapshot/snapshot-*"],
    pointers=["*/snapshot/LATEST", "*/snapshot/EARLIEST", "*/tag/*"],
)
