# SPDX-License-Identifier: Apache-2.0
"""Commands that run processes until they are stopped."""
