# SPDX-License-Identifier: Apache-2.0
"""The live catalog: Iceberg tables with their hot tail, answered to any engine and committed nowhere."""
