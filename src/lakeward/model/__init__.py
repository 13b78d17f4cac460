# SPDX-License-Identifier: Apache-2.0
"""The domain as frozen data: tables, schemas, offsets, splits, rounds, states. No I/O.

Import names from here: `from lakeward.model import Bucket, TableInfo`. A module is loaded when one of its names is
first asked for, so that Arrow does not load where it is not used. A new public name is added to `_NAMES`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.model.arrow import *  # noqa: F403
    from lakeward.model.cut import *  # noqa: F403
    from lakeward.model.disk import *  # noqa: F403
    from lakeward.model.ids import *  # noqa: F403
    from lakeward.model.ledger import *  # noqa: F403
    from lakeward.model.logline import *  # noqa: F403
    from lakeward.model.newtable import *  # noqa: F403
    from lakeward.model.offsets import *  # noqa: F403
    from lakeward.model.offsetset import *  # noqa: F403
    from lakeward.model.partitionkey import *  # noqa: F403
    from lakeward.model.process import *  # noqa: F403
    from lakeward.model.round import *  # noqa: F403
    from lakeward.model.schema import *  # noqa: F403
    from lakeward.model.schemachange import *  # noqa: F403
    from lakeward.model.side import *  # noqa: F403
    from lakeward.model.state import *  # noqa: F403
    from lakeward.model.table import *  # noqa: F403
    from lakeward.model.tablepath import *  # noqa: F403
    from lakeward.model.types import *  # noqa: F403
    from lakeward.model.types.decimals import *  # noqa: F403
    from lakeward.model.types.fieldchange import *  # noqa: F403
    from lakeward.model.types.literal import *  # noqa: F403
    from lakeward.model.types.nestednulls import *  # noqa: F403
    from lakeward.model.types.sqltype import *  # noqa: F403
    from lakeward.model.types.typetable import *  # noqa: F403
    from lakeward.model.versioned import *  # noqa: F403

_NAMES = {
    "arrow": (
        "BUCKET_FIELD LAKE_FIELDS LAKE_NAMES LOG_FIELDS PREV_OFFSET_FIELD SNAPSHOT_FIELDS TIMESTAMP_COLUMN_TYPE "
        "TYPE_KEY cast_fields default_scalar fit_column from_arrow_field from_arrow_schema log_fields map_leaves "
        "missing_values to_arrow_field to_arrow_schema to_arrow_type with_default"
    ),
    "cut": "Cut CutEnds CutSchedule CutSide CutState CutTable check_cut check_schedule",
    "disk": "BALLAST_BYTES Ballast DISK_FULL find_disk_trouble free_bytes usable",
    "ids": (
        "Epoch Id InstanceId JobName LeaseId NO_EPOCH RoundId SnapshotId TableId draw_ids_from new_folder_name "
        "new_instance_id new_lease_id new_round_id new_table_id"
    ),
    "ledger": "ExpiringSnapshot Intent IntentState LedgerEntry LedgerKind SKIPPED",
    "logline": "EscapedLines LeftOut escape_log",
    "newtable": "FIXED FIXED_FOREVER MOST_COLUMNS check_new_columns check_new_table warn_of_columns",
    "offsets": (
        "Bucket ChangeType HIVE_NULL LogSplit OffsetMap OffsetRange PARTITION_SEPARATOR SnapshotSplit Split "
        "partition_name partition_values split_from_json"
    ),
    "offsetset": "OffsetSet Offsets",
    "partitionkey": "PartitionKey PartitionUnit",
    "process": (
        "BackgroundThread Clock FAULTS_ENV Heartbeat Injector StopSignal SystemClock fault_point resident_bytes "
        "set_injector"
    ),
    "round": "LakeBase RoundOwner RoundPhases RoundPlan RoundResult describe_plan",
    "schema": "BUCKET CHANGE_TYPE Column OFFSET PREV_OFFSET SYSTEM_COLUMNS Schema TIMESTAMP typed",
    "schemachange": (
        "ColumnChange ColumnChanges ColumnDifference change_columns check_evolved diff_schemas may_widen refuse_type"
    ),
    "side": (
        "CHANGELOG_PROPERTY Content DEFAULT_SIDE LAKES_PROPERTY RETENTION_PROPERTY SideId SideName TIER "
        "WorkKind changelog_side first_side named_sides"
    ),
    "state": "ENTERED_FROM TableState check_transition is_legal render_diagram render_page",
    "table": (
        "BucketFunction FLUSS_PARTITIONS GONE_PARTITION SYSTEM_COLUMNS_PROPERTY TableDescriptor TableInfo "
        "is_changelog side_table"
    ),
    "tablepath": "TablePath UNNAMED check_database of_table",
    "types": (
        "ArrayType BinaryType BooleanType BytesType CharType DataType DateType DecimalType Float32Type Float64Type "
        "Int16Type Int32Type Int64Type Int8Type MapType RowField RowType StringType TimeType TimestampLtzType "
        "TimestampType TypeVisitor VectorType leaves parts quote_name"
    ),
    "types.decimals": "cast_column check_decimal decimals_in parse_decimal parse_number",
    "types.fieldchange": "FIRST FieldNode TypeNode type_node",
    "types.literal": "check_default default_value parse_leading_literal spell_default spell_value",
    "types.nestednulls": "cast_values find_nested_null without_hidden_nulls",
    "types.sqltype": "parse_defaulted parse_fields parse_leading_type parse_type",
    "types.typetable": "TYPES TypeRow plain_types row_of spell",
    "versioned": "OwnBytes pack unpack",
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
