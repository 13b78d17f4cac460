# SPDX-License-Identifier: Apache-2.0
"""Rows that arrive over HTTP: read from a request's body, checked, and stored."""
