# SPDX-License-Identifier: Apache-2.0
"""Sources: what brings rows to tables from other systems. One folder per kind."""
