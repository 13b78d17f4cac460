# SPDX-License-Identifier: Apache-2.0
"""The coordinator's answers: status, explanations, read plans."""
