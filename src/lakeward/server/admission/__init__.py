# SPDX-License-Identifier: Apache-2.0
"""Who asks, and what may come in, before a body is read."""
