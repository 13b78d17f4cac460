# SPDX-License-Identifier: Apache-2.0
"""The chaos lab (`lab.ChaosLab`): a real server, jobs, producers and readers, hurt by a seeded plan; then every
invariant is checked.
"""
