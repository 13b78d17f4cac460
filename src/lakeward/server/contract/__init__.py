# SPDX-License-Identifier: Apache-2.0
"""What happens to rows that a table does not take: columns are added for them, or they wait in a quarantine."""
