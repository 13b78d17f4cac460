# SPDX-License-Identifier: Apache-2.0
"""What every kind of work is made of: orders, control, dispatch, attempts, the way into the lake."""
