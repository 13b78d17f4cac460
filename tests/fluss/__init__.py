# SPDX-License-Identifier: Apache-2.0
"""A package, so that its cluster ends with its last test."""
