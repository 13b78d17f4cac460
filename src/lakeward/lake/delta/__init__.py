# SPDX-License-Identifier: Apache-2.0
"""Delta tables in a local folder: data files, vectors and the log's entries are written here, without a JVM."""
