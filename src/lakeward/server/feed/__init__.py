# SPDX-License-Identifier: Apache-2.0
"""Figures that pages show, kept up to date while the server runs."""
