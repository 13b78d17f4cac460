# SPDX-License-Identifier: Apache-2.0
"""Which files and rows of a Delta table a reader sees."""
