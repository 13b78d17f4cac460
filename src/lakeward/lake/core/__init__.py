# SPDX-License-Identifier: Apache-2.0
"""The lake commit protocol, written once. A format brings a `SnapshotLog` (log.py), `RowFiles` and columns."""
