# SPDX-License-Identifier: Apache-2.0
"""Lance tables: fragments and deletion files of our own, versions that the library builds and that we publish."""
