# SPDX-License-Identifier: Apache-2.0
"""A Delta table's own words: its log, checkpoints, actions, columns."""
