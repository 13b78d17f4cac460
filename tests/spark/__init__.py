# SPDX-License-Identifier: Apache-2.0
"""A package, so that its Spark session ends with its last test."""
