# SPDX-License-Identifier: Apache-2.0
"""Handles rows that do not fit their table: adds columns for them, or puts them into a quarantine."""
