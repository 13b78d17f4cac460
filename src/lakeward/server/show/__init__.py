# SPDX-License-Identifier: Apache-2.0
"""What pages and metrics say, and where they have it from."""
