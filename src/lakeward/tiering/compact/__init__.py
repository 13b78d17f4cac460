# SPDX-License-Identifier: Apache-2.0
"""Compactions: the kind of work that rewrites data files of a side into fewer ones (design.md 13)."""
