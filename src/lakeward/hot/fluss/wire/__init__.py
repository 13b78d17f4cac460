# SPDX-License-Identifier: Apache-2.0
"""Fluss's protocol: connections, messages, fetched logs and remote files."""
