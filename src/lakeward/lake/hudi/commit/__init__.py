# SPDX-License-Identifier: Apache-2.0
"""How a commit of a Hudi table comes about: ground, lock, landing."""
