# SPDX-License-Identifier: Apache-2.0
"""How a round becomes one snapshot: resolve, deletes, the request that lands or does not."""
