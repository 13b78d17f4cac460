# SPDX-License-Identifier: Apache-2.0
"""Other engines on the oracle's lake tables: each format's own readers, and what they change between our commits."""
