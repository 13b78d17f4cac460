# SPDX-License-Identifier: Apache-2.0
"""Connections to Iceberg catalogs, and the catalog that the server keeps itself."""
