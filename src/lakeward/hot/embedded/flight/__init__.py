# SPDX-License-Identifier: Apache-2.0
"""Arrow Flight: the server that wraps an embedded store, and the client side of it."""
