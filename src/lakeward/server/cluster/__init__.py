# SPDX-License-Identifier: Apache-2.0
"""The page of an Apache Fluss cluster: the server's own pages, with facts that the cluster and the lake tell."""
