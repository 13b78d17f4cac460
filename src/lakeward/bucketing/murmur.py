# SPDX-License-Identifier: Apache-2.0
"""Murmur3 with 32 bits over many byte strings at once, with the standard tail and with the one of Fluss and Paimon."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from lakeward.bucketing.keybytes import KeyBytes

Hashes = npt.NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_N = np.uint32(0xE6546B64)
_F1, _F2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


class Tail(Enum):
    """How the one to three bytes after the last full word are mixed in."""

    STANDARD = "standard"
    """Together one partial word (Iceberg)."""

    SIGNED_BYTES = "signed bytes"
    """Each, sign-extended, as a word of its own (Fluss, Paimon)."""


def hash_words(words: Sequence[Hashes], seed: int) -> Hashes:
    """Keys of equal length, given as their little-endian words."""
    state = np.full(len(words[0]), seed, np.uint32)
    for word in words:
        state = mix(state, word)
    return finish(state, np.uint32(4 * len(words)))


def hash_bytes(keys: KeyBytes, seed: int, tail: Tail) -> Hashes:
    """Keys of any lengths: longest first, so that each word position is one slice of those that reach it."""
    order = np.argsort(_narrow(keys.lengths.max(initial=0) - keys.lengths), kind="stable")
    starts, lengths = keys.starts[order], keys.lengths[order]
    state = np.full(len(order), seed, np.uint32)
    wholes = lengths >> 2
    for at in range(int(wholes.max(initial=0))):
        reach = int(np.searchsorted(-wholes, -at, side="left"))
        state[:reach] = mix(state[:reach], _word_at(keys.data, starts[:reach] + 4 * at))
    tail_lengths = lengths & 3
    _mix_tail(state, keys.data, starts + lengths - tail_lengths, tail_lengths, tail)
    hashes = np.empty_like(state)
    hashes[order] = finish(state, lengths.astype(np.uint32))
    return hashes


def mix(state: Hashes, word: Hashes) -> Hashes:
    mixed = state ^ scramble(word)
    mixed = rotate(mixed, 13)
    mixed *= np.uint32(5)
    mixed += _N
    return mixed


def scramble(word: Hashes) -> Hashes:
    mixed = word * _C1
    mixed = rotate(mixed, 15)
    mixed *= _C2
    return mixed


def finish(state: Hashes, length: np.uint32 | Hashes) -> Hashes:
    mixed = state ^ length
    mixed ^= mixed >> np.uint32(16)
    mixed *= _F1
    mixed ^= mixed >> np.uint32(13)
    mixed *= _F2
    mixed ^= mixed >> np.uint32(16)
    return mixed


def rotate(values: Hashes, bits: int) -> Hashes:
    turned = values << np.uint32(bits)
    turned |= values >> np.uint32(32 - bits)
    return turned


def _mix_tail(
    state: Hashes, data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], left: npt.NDArray[np.int64], tail: Tail
) -> None:
    partial = np.zeros(len(state), np.uint32)
    for position in range(3):
        has = np.flatnonzero(left > position)
        if not len(has):
            break
        tail_bytes = data[at[has] + position]
        if tail is Tail.SIGNED_BYTES:
            state[has] = mix(state[has], tail_bytes.view(np.int8).astype(np.int32).view(np.uint32))
        else:
            partial[has] |= tail_bytes.astype(np.uint32) << np.uint32(8 * position)
    if tail is Tail.STANDARD:
        state ^= scramble(partial)


def _word_at(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> Hashes:
    word = data[at].astype(np.uint32)
    for position in range(1, 4):
        word |= data[at + position].astype(np.uint32) << np.uint32(8 * position)
    return word


def _narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | npt.NDArray[np.uint16]:
    """Sixteen bits where they do: numpy then sorts by radix."""
    return values.astype(np.uint16) if values.max(initial=0) < 65_536 else values
