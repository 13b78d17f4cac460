# SPDX-License-Identifier: Apache-2.0
"""Fluss's KV snapshots and rows."""
