# SPDX-License-Identifier: Apache-2.0
"""The Iceberg lake: catalog mapping, writer, fenced commit, reader and maintenance, on PyIceberg's classes."""
