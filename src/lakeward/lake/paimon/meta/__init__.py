# SPDX-License-Identifier: Apache-2.0
"""Paimon's metadata: connection, schema, snapshots, manifests, and intents."""
