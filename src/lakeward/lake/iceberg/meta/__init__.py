# SPDX-License-Identifier: Apache-2.0
"""Table metadata: mapping of tables and types, summaries, manifests, ancestry."""
