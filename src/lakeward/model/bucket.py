# SPDX-License-Identifier: Apache-2.0
"""A bucket's name: (partition, number). A row's address is (partition, bucket, offset), never less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakeward.errors import InvalidRequest

PARTITION_SEPARATOR = "$"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, and engines that name folders as it does, call a partition whose key is null."""


@dataclass(frozen=True, order=True)
class Bucket:
    """`partition` is "" for an unpartitioned table, else the partition's name: its values joined with `$`."""

    partition: str
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise InvalidRequest(what=f"bucket {self.number}", reason="bucket numbers start at 0")

    def __str__(self) -> str:
        return f"{self.partition}/{self.number}" if self.partition else str(self.number)

    @classmethod
    def parse(cls, text: str) -> Bucket:
        partition, _, number = text.rpartition("/")
        if not (number.isascii() and number.isdigit()):
            raise InvalidRequest(what=f"bucket {text!r}", reason="expected NUMBER or PARTITION/NUMBER")
        return cls(partition, int(number))


def partition_name(values: Sequence[str]) -> str:
    """The partition's name from its key values as text. Checked: it names folders and must read back the same."""
    for value in values:
        if (
            not value
            or PARTITION_SEPARATOR in value
            or "/" in value
            or "\\" in value
            or "\x00" in value
            or value in (".", "..")
        ):
            raise InvalidRequest(
                what=f"partition value {value!r}",
                reason="a value is not empty, not . or .., and has no $, / , \\ or NUL in it",
            )
    return PARTITION_SEPARATOR.join(values)


def partition_values(name: str) -> tuple[str, ...]:
    return tuple(name.split(PARTITION_SEPARATOR)) if name else ()
