# SPDX-License-Identifier: Apache-2.0
"""Row to bucket, vectorised on Arrow arrays; one file per function."""

from lakeward.bucketing.assign import assign, assign_buckets, check_bucket_keys, choose_function
from lakeward.bucketing.hudi import find_ambiguous

__all__ = ["assign", "assign_buckets", "check_bucket_keys", "choose_function", "find_ambiguous"]
