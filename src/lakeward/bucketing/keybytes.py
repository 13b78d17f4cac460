# SPDX-License-Identifier: Apache-2.0
"""Byte strings of many rows in one buffer, and how they are strung together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyBytes:
    """Row i is `data[starts[i] : starts[i] + lengths[i]]`."""

    data: Bytes
    starts: Counts
    lengths: Counts

    @classmethod
    def from_matrix(cls, matrix: Bytes, lengths: Counts, *, from_end: bool = False) -> KeyBytes:
        """The first (or last) so many bytes of each row of a matrix."""
        rows, width = matrix.shape
        starts = np.arange(rows, dtype=np.int64) * width
        return cls(
            np.ascontiguousarray(matrix).reshape(-1), starts + (width - lengths) if from_end else starts, lengths
        )

    def joined(self, others: Sequence[KeyBytes]) -> KeyBytes:
        """Each row's strings one after the other."""
        parts = [self, *others]
        lengths = np.stack([p.lengths for p in parts]).sum(axis=0)
        ends = np.cumsum(lengths)
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        at = starts = ends - lengths
        for part in parts:
            part.copy_to(data, at)
            at = at + part.lengths
        return KeyBytes(data, starts, lengths)

    def copy_to(self, target: Bytes, at: Counts) -> None:
        """Puts row i at `target[at[i]]` and on."""
        total = int(self.lengths.sum())
        within = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        target[np.repeat(at, self.lengths) + within] = self.data[np.repeat(self.starts, self.lengths) + within]


def leb128(values: npt.NDArray[np.uint64]) -> KeyBytes:
    """Unsigned, seven bits a byte, low bits first; all but the last byte have the top bit set."""
    matrix = np.zeros((len(values), 10), np.uint8)
    lengths = np.ones(len(values), np.int64)
    rest = values
    for at in range(10):
        more = rest >= 128
        matrix[:, at] = rest.astype(np.uint8) & 0x7F | (more.view(np.uint8) << 7)
        lengths += more
        if not more.any():
            break
        rest = rest >> np.uint64(7)
    return KeyBytes.from_matrix(matrix, lengths)
