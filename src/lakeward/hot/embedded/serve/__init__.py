# SPDX-License-Identifier: Apache-2.0
"""Arrow Flight, the server's side: what wraps an embedded store."""
