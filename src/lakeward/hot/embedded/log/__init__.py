# SPDX-License-Identifier: Apache-2.0
"""A bucket's log: segments on disk and in the remote tier, appended in groups, recovered after any stop."""
