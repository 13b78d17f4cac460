# SPDX-License-Identifier: Apache-2.0
"""The Apache Paimon lake, on a filesystem, JDBC or REST catalog."""
