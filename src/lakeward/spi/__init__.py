# SPDX-License-Identifier: Apache-2.0
"""The plug points: lake formats, hot stores and what coordinates them.

Import names from here: `from lakeward.spi import LakeStorage, LakeWriter`. A module is loaded when one of its names is
first asked for. A new public name is added to `_NAMES`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.spi.capabilities import *  # noqa: F403
    from lakeward.spi.commit import *  # noqa: F403
    from lakeward.spi.coordinator import *  # noqa: F403
    from lakeward.spi.flussoffsets import *  # noqa: F403
    from lakeward.spi.hot import *  # noqa: F403
    from lakeward.spi.hotadmin import *  # noqa: F403
    from lakeward.spi.lake.catalog import *  # noqa: F403
    from lakeward.spi.lake.committer import *  # noqa: F403
    from lakeward.spi.lake.maintenance import *  # noqa: F403
    from lakeward.spi.lake.reader import *  # noqa: F403
    from lakeward.spi.lake.storage import *  # noqa: F403
    from lakeward.spi.lake.supports import *  # noqa: F403
    from lakeward.spi.lake.writer import *  # noqa: F403
    from lakeward.spi.lakeerrors import *  # noqa: F403
    from lakeward.spi.lakefile import *  # noqa: F403
    from lakeward.spi.lakeplugin import *  # noqa: F403
    from lakeward.spi.plugins import *  # noqa: F403
    from lakeward.spi.registry import *  # noqa: F403
    from lakeward.spi.resume import *  # noqa: F403
    from lakeward.spi.rewrite import *  # noqa: F403
    from lakeward.spi.snapshotkeys import *  # noqa: F403

_NAMES = {
    "capabilities": (
        "DeleteEncoding Lack LakeCapabilities check_bucket_function check_column_changes check_table "
        "removes_foreign_rows"
    ),
    "commit": "CommitProperties Committable Precondition Renewal",
    "coordinator": "CoordinatorClient IntentStore",
    "flussoffsets": "FlussPartitions decode_fluss_offsets encode_fluss_offsets find_partitions is_of_fluss table_id_in",
    "hot": "FrozenTable HotPlugin HotStore KvSnapshot LogBounds NO_ROWS",
    "hotadmin": "HotAdmin HotLoad RetentionGuard Waiting",
    "lake.catalog": "LakeCatalog OWN_PROPERTY is_own",
    "lake.committer": "LakeCommitter",
    "lake.maintenance": "LakeMaintenance PROBE",
    "lake.reader": "LakeReader",
    "lake.storage": "LakeStorage",
    "lake.supports": (
        "SupportsChanges SupportsFileOrder SupportsForeignTables SupportsIntents SupportsKeyDeletes SupportsProbe "
        "SupportsReaders SupportsRestore SupportsRewrite SupportsRewriteCommit SupportsSnapshotNames SupportsTakeOver "
        "SupportsVectors"
    ),
    "lake.writer": "LakeWriter WriteTask",
    "lakeerrors": "lake_named name_lake",
    "lakefile": "AdoptedRows Expired LakeDelete LakeFile LakeSnapshot LakeTotals StoredFile",
    "lakeplugin": "LakePlugin spell_place without_secrets",
    "plugins": "PROCESS_PLUGINS Plugin PluginCache",
    "registry": "HOT_GROUP LAKE_GROUP find_lake_plugin find_missing_library import_plugin installed load_hot load_lake",
    "resume": "next_offset read_on",
    "rewrite": "PreparedRewrite RewriteGroup RewriteResult RewriteTask dropped_group rows_after",
    "snapshotkeys": (
        "COMMIT_USER COMMIT_USER_KEY EPOCH_KEY FENCE_KEY GENERATION_KEY JOB_KEY OFFSETS_KEY OWN_OFFSETS_KEY "
        "REWRITE_KEY ROUND_KEY ROWS_KEY TABLE_ID_KEY TAG decode_base decode_offsets decode_snapshot decode_token "
        "encode_all_keys is_of"
    ),
}
"""Module -> its public names."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker has the names from above, and reports others

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
