# SPDX-License-Identifier: Apache-2.0
"""Content of pages and metrics, and its sources."""
