# SPDX-License-Identifier: Apache-2.0
"""Lets Spark find `format("lakeward")` by itself: it looks for `DefaultSource` in packages whose name begins with
pyspark_.
"""

from lakeward.spark.source import LakewardDataSource as DefaultSource

__all__ = ["DefaultSource"]
