# SPDX-License-Identifier: Apache-2.0
"""Live rows of a snapshot: its files, their deletes, what a filter lets out."""
