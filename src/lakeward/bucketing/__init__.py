# SPDX-License-Identifier: Apache-2.0
"""Row to bucket, vectorised on Arrow arrays; one file per function."""

from lakeward.bucketing.assign import assign, assign_buckets
from lakeward.bucketing.hudi import find_ambiguous
from lakeward.bucketing.keys import check_bucket_keys, choose_function

__all__ = ["assign", "assign_buckets", "check_bucket_keys", "choose_function", "find_ambiguous"]
