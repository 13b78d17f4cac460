# SPDX-License-Identifier: Apache-2.0
"""The short door for Spark: `lakeward.spark.read`, `view`, `register`.

import lakeward.spark
df = lakeward.spark.read(spark, "db.orders", server="http://127.0.0.1:9050")
"""

from lakeward.spark.frames import read, register, view

__all__ = ["read", "register", "view"]
