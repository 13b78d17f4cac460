# SPDX-License-Identifier: Apache-2.0
"""Row to bucket, vectorised on Arrow arrays; one file per function."""

from lakeward.bucketing.keys import check_bucket_keys

__all__ = ["check_bucket_keys"]
