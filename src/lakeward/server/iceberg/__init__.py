# SPDX-License-Identifier: Apache-2.0
"""The Iceberg REST catalog under `/iceberg`."""
