# SPDX-License-Identifier: Apache-2.0
"""What tests of Iceberg lakes need: another engine that writes, a catalog server, a proxy that
loses answers, DuckDB.
"""
