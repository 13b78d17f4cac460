# SPDX-License-Identifier: Apache-2.0
"""Rows for the pages: a sample of a table, and SQL. What is read is read here; SQL runs in a process of its own that
can open neither files nor connections.
"""
