# SPDX-License-Identifier: Apache-2.0
"""Parts that every kind of work shares: orders, control, dispatch, attempts, the way into the lake."""
