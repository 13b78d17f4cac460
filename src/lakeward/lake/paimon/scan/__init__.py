# SPDX-License-Identifier: Apache-2.0
"""Reads of a bucket that merge its files by key."""
