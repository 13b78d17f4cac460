# SPDX-License-Identifier: Apache-2.0
"""What a table is and holds: the way to it, its schema, snapshots, manifests, and what goes."""
