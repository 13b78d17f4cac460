# SPDX-License-Identifier: Apache-2.0
"""The embedded hot store: logs, primary keys, partitions, remote log, served over Arrow Flight."""
