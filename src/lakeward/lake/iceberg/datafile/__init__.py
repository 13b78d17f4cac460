# SPDX-License-Identifier: Apache-2.0
"""Data files: how they are written, statistics, offsets, deletion vectors."""
