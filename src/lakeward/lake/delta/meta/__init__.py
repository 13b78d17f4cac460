# SPDX-License-Identifier: Apache-2.0
"""Delta's metadata: log, checkpoints, actions, columns."""
