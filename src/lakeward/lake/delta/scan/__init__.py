# SPDX-License-Identifier: Apache-2.0
"""Rows of a Delta table: which files hold them, and what they are read as."""
