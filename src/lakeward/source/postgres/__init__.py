# SPDX-License-Identifier: Apache-2.0
"""Postgres: a snapshot, then logical replication with pgoutput."""
