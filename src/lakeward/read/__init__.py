# SPDX-License-Identifier: Apache-2.0
"""Union read: one table, the lake's history plus the hot tail. `plan` is pure; `arrow` reads without Spark; `spark/`
with it.
"""
