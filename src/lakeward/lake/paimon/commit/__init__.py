# SPDX-License-Identifier: Apache-2.0
"""A commit: what it takes out, the manifests and the snapshot that it makes."""
