# SPDX-License-Identifier: Apache-2.0
"""One round of one table, on the driver: reconcile, plan, write, resolve, commit. docs/round.md walks through it."""
