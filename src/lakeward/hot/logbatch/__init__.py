# SPDX-License-Identifier: Apache-2.0
"""The log-batch codec that the embedded hot store's files and Fluss's wire share."""
