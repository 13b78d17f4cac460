# SPDX-License-Identifier: Apache-2.0
"""The coordinator's state, in memory and on disk: tables, jobs, leases, ledger, intents."""
