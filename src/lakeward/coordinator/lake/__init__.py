# SPDX-License-Identifier: Apache-2.0
"""What the coordinator does to lakes and reads in them: DDL over both sides, commits recorded, snapshots expired."""
