# SPDX-License-Identifier: Apache-2.0
"""The token a write returns: hand it to a read to see at least that write."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from lakeward.errors import InvalidRequest
from lakeward.model import OffsetMap, TableId


@dataclass(frozen=True, kw_only=True)
class WriteToken:
    """`offsets`: per bucket written to, the offset after the last record of the write."""

    table_id: TableId
    offsets: OffsetMap

    def merged(self, later: WriteToken) -> WriteToken:
        return WriteToken(table_id=later.table_id, offsets=self.offsets.raised(later.offsets))

    def __str__(self) -> str:
        body = json.dumps({"table_id": self.table_id, **self.offsets.to_json()}, separators=(",", ":"))
        return base64.urlsafe_b64encode(body.encode()).decode()

    @classmethod
    def parse(cls, text: str) -> WriteToken:
        try:
            body = json.loads(base64.urlsafe_b64decode(text.encode()))
            return cls(table_id=TableId(body["table_id"]), offsets=OffsetMap.from_json(body))
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(what="write token", reason=f"{text[:40]!r} is none: {error}") from error
