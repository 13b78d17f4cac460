# SPDX-License-Identifier: Apache-2.0
"""What the coordinator knows, in memory and on disk: tables, jobs, leases, ledger, intents."""
