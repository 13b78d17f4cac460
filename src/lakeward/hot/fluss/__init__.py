# SPDX-License-Identifier: Apache-2.0
"""An Apache Fluss cluster as hot store: its RPC, its log and KV snapshots, its coordinator's part in tiering."""
