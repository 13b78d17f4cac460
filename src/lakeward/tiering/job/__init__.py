# SPDX-License-Identifier: Apache-2.0
"""The Spark job around the rounds: session, heartbeat, dispatch, metrics, clean end."""
