# SPDX-License-Identifier: Apache-2.0
"""The chaos lab: a real server, jobs, producers and readers, hurt by a seeded plan of faults; then every invariant is checked."""

from lakeward.testing.chaos.lab import ChaosLab, LabOptions, LabReport
from lakeward.testing.chaos.plan import FaultKind, PlannedFault, plan_faults

__all__ = ["ChaosLab", "FaultKind", "LabOptions", "LabReport", "PlannedFault", "plan_faults"]
