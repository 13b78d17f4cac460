# SPDX-License-Identifier: Apache-2.0
"""Apache Hudi as a lake format: its files and its timeline, written and read here; rounds need no Java."""
