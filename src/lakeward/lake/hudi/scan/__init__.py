# SPDX-License-Identifier: Apache-2.0
"""Rows of a Hudi table: log files, keys, what is merged over what."""
