# SPDX-License-Identifier: Apache-2.0
"""The coordinator's work in lakes: DDL over hot store and lake, recorded commits, expired snapshots."""
