# SPDX-License-Identifier: Apache-2.0
"""Every error Lakeward raises, in one tree. Imports no other package of Lakeward. A branch of it is a file here.

    LakewardError
    ├── InvalidInput                the input of a person or program is wrong; nothing was changed
    │   ├── InvalidConfig           UnknownOption, InvalidOptionValue
    │   ├── InvalidTable, UnsupportedType, UnsupportedBucketKey, InvalidAlter
    │   ├── InvalidRows             row, column, reason
    │   ├── TooManyBadRows          more rows do not fit than a quarantine takes
    │   ├── InvalidRequest          malformed HTTP, Flight or plan input
    │   ├── NotJson, UnsupportedBody, IdempotencyKeyReused
    │   └── SparkUnsupported, JavaNotFound, BundleNotFound, UnsafeLake
    ├── NotFound                    TableNotFound (FlussTableNotFound), SideNotFound, LakeNotFound, PartitionNotFound,
    │                               SourceNotFound, CutNotFound, CutScheduleNotFound, SnapshotGone, OffsetOutOfRange,
    │                               HistoryGone, PluginNotFound
    ├── AlreadyExists               TableAlreadyExists, CutExists, SourceExists, LakeMismatch, LakeNotEmpty
    ├── Refused                     Unauthorized, Forbidden, ReadOnlyWarehouse, ForeignCaller, IncompatibleVersion,
    │                               InsecureBinding
    ├── HotStoreError               BucketStopped (BucketUnavailable), CorruptBatch, OutOfSequence,
    │                               WriterForgotten, DiskFull, QuotaExceeded, LiveQuotaExceeded, Overloaded,
    │                               PartitionExpired, DataFolderLocked, DataFolderUnusable, DataFolderVersion,
    │                               UnsafePath, WritesPaused, TableLoading, LoadLost, SchemaChanged, LogTooShort,
    │                               HotStoreBehind, LogRewritten, KvFailed, FlussError
    ├── CoordinatorError            LeaseLost, UnknownWork, Superseded, LedgerGap, IllegalTransition,
    │                               TableBusy
    ├── CommitError                 CommitConflict, CommitUnknown
    ├── LakeError                   LakeUnavailable, LakeRolledBack, LakeBehind, LakeForeign, LakeTampered, LakeOverlap,
    │                               LakeTableGone, LakeMetadataGone, LakeMetadataTooLarge, LakePathRefused,
    │                               LakeFileBroken, LakeHistoriesDiffer, LakeFolderMoved, LakeSchemaBroken,
    │                               ReplacedRowMissing,
    │                               ForeignRowsFound, LakeHistoryGone, RowNotEncoded, LakeUnreadable, RoundTooOld
    ├── SourceError                 SourceFenced, SourceOutOfStep, SourceGroupLost, SourceStopped, SourceUnavailable
    ├── Unavailable                 ServerUnavailable (ClusterUnavailable, IssuerUnavailable), TimedOut,
    │                               ReadTooFarAhead, CutNotReady
    ├── StartFailed                 a child process ended before it was up
    ├── SplitFailed                 a task failed with an unexpected exception
    ├── LeftBehind                  a writer fell behind the others of its read
    ├── FaultInjected               a test asked for it
    └── RemoteError                 a peer sent a code this version does not know

Constructors take facts as keywords and keep them as attributes. `code` is stable: it travels over HTTP, Flight and out
of Spark tasks, and `from_wire` brings the same type back.
"""

from __future__ import annotations

from lakeward.errors.coordinator import *  # noqa: F403
from lakeward.errors.existence import *  # noqa: F403
from lakeward.errors.hotstore import *  # noqa: F403
from lakeward.errors.input import *  # noqa: F403
from lakeward.errors.lake import *  # noqa: F403
from lakeward.errors.passing import *  # noqa: F403
from lakeward.errors.refusal import *  # noqa: F403
from lakeward.errors.root import *  # noqa: F403
from lakeward.errors.source import *  # noqa: F403
