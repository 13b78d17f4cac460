# SPDX-License-Identifier: Apache-2.0
"""Rows in and out of files: formats, progress, what a second run goes on with."""
