# SPDX-License-Identifier: Apache-2.0
"""The commit of a round: resolve, deletes, manifests, and the request to the catalog."""
