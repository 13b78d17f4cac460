# SPDX-License-Identifier: Apache-2.0
"""What the coordinator tells others: status, explanations, read plans."""
