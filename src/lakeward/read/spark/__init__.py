# SPDX-License-Identifier: Apache-2.0
"""Union read in Spark: DataFrames over Spark's own Parquet scan, a Data Source, streaming and writes."""
