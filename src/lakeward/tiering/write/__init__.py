# SPDX-License-Identifier: Apache-2.0
"""Code that runs in an executor's Python process: a split is read, folded, sorted and written."""
