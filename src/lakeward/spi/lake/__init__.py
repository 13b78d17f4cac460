# SPDX-License-Identifier: Apache-2.0
"""The plug point for lake formats. A plugin is an entry point in group `lakeward.lake`: a callable that takes the
options below `datalake.<format>.` (prefix removed) and returns a `LakeStorage`.

Who holds what: the server holds a `LakeCatalog` (DDL) and a `LakeMaintenance`; a round's driver a `LakeReader` and a
`LakeCommitter`; executors a `LakeWriter` each. All but writers are safe to use from several threads, one table at a
time.

Up to 0.1 these names were imported from here; until 0.3 they still can be, with a `DeprecationWarning`.
"""

from __future__ import annotations

from importlib import import_module
from warnings import warn

_MOVED = {
    "lakeward.spi.commit": "CommitProperties Committable Precondition Renewal",
    "lakeward.spi.lake.catalog": "LakeCatalog OWN_PROPERTY is_own",
    "lakeward.spi.lake.committer": "LakeCommitter",
    "lakeward.spi.lake.maintenance": "LakeMaintenance PROBE",
    "lakeward.spi.lake.reader": "LakeReader",
    "lakeward.spi.lake.storage": "LakeStorage",
    "lakeward.spi.lake.writer": "LakeWriter WriteTask",
    "lakeward.spi.lakefile": "AdoptedRows Expired LakeDelete LakeFile LakeSnapshot LakeTotals StoredFile",
    "lakeward.spi.rewrite": "PreparedRewrite RewriteGroup RewriteResult RewriteTask",
    "lakeward.spi.snapshotkeys": (
        "COMMIT_USER COMMIT_USER_KEY EPOCH_KEY FENCE_KEY GENERATION_KEY JOB_KEY OFFSETS_KEY ROUND_KEY ROWS_KEY "
        "TABLE_ID_KEY TAG"
    ),
}
_HOMES = {name: module for module, names in _MOVED.items() for name in names.split()}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn(f"{__name__}.{name} is now {home}.{name}; the old name goes with 0.3", DeprecationWarning, stacklevel=2)
    return getattr(import_module(home), name)
