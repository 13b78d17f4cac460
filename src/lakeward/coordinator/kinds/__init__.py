# SPDX-License-Identifier: Apache-2.0
"""The kinds of work that this coordinator hands out. A new kind is a file here and a line in `KINDS`."""

from __future__ import annotations

from lakeward.coordinator.kinds.compact import CompactKind
from lakeward.coordinator.kinds.tier import TierKind
from lakeward.coordinator.schedule.kind import Kind

KINDS: tuple[type[Kind], ...] = (TierKind, CompactKind)
"""Those with more say first: what one leaves of a job's room is the next one's."""
