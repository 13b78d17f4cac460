# SPDX-License-Identifier: Apache-2.0
"""Where intents are kept: the coordinator's database here, small objects beside the table in the Fluss setting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from lakeward.model import Intent, RoundId, TableId


class IntentStore(ABC):
    """Intents make the listing of orphans cheap; losing them loses nothing (a sweep of the folder finds the same
    files).
    """

    @abstractmethod
    def record(self, intent: Intent) -> None:
        """Durable before it returns. Recording the same round twice keeps the first."""

    @abstractmethod
    def abandon(self, round_id: RoundId) -> None:
        """Marks it; unknown ids are no error."""

    @abstractmethod
    def open_intents(self, table_id: TableId) -> Sequence[Intent]:
        """Intents that are not committed and not cleaned, oldest first."""

    @abstractmethod
    def forget(self, round_id: RoundId) -> None:
        """After its orphans are gone and its writer can no longer commit. Safe to repeat."""
