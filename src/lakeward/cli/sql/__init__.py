# SPDX-License-Identifier: Apache-2.0
"""SQL over lake and tail, by DuckDB."""
