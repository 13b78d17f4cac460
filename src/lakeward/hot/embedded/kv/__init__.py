# SPDX-License-Identifier: Apache-2.0
"""The key-value side of a PK table's bucket: RocksDB, the row codec, changelogs, KV snapshots."""
