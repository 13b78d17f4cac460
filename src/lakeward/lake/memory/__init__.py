# SPDX-License-Identifier: Apache-2.0
"""A complete lake in one process's memory: for tests, simulations and as the smallest example of a plugin."""
