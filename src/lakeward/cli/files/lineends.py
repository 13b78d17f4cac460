# SPDX-License-Identifier: Apache-2.0
"""CSV files whose records end in different ways, as files that were joined do: given to DuckDB with one kind of end."""

from __future__ import annotations

import mmap
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PACKED = {".gz": "gzip", ".zst": "zstd"}
_BLOCK_BYTES = 1 << 20


@contextmanager
def with_one_line_end(file: Path, delimiter: str, encoding: str) -> Iterator[Path]:
    """The file itself, or a copy of it where the ends outside of quotes differ."""
    if encoding.startswith("utf-16") or not _may_differ(file):
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="lakeward-csv-") as folder:
        plain = file
        if file.suffix.lower() in PACKED:
            plain = Path(folder) / "unpacked.csv"
            with open_bytes(file) as source, plain.open("wb") as out:
                shutil.copyfileobj(source, out, _BLOCK_BYTES)
        with plain.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped_file:
            if len({match[0] for match in _line_ends(mapped_file, delimiter)}) < 2:
                yield file
                return
            copy = Path(folder) / "rows.csv"
            with copy.open("wb") as out:
                _copy(mapped_file, delimiter, out)
        yield copy


def open_bytes(file: Path) -> IO[bytes]:
    """The file's bytes, unpacked where its name ends in .gz or .zst."""
    import pyarrow as pa

    opened: IO[bytes] = pa.input_stream(str(file), compression=PACKED.get(file.suffix.lower()))
    return opened


def _may_differ(file: Path) -> bool:
    """Cells in quotes count here too: a look at each is dearer."""
    windows = old_mac = unix = 0
    last = b""
    with open_bytes(file) as source:
        while part := source.read(_BLOCK_BYTES):
            pairs = part.count(b"\r\n")
            windows += pairs + (last == b"\r" and part[:1] == b"\n")
            old_mac += part.count(b"\r")
            unix += part.count(b"\n")
            last = part[-1:]
    return sum((windows > 0, old_mac > windows, unix > windows)) > 1


def _line_ends(whole: mmap.mmap, delimiter: str) -> Iterator[re.Match[bytes]]:
    """Those outside of quotes. A quote opens a cell only at the cell's begin."""
    sign = re.escape(delimiter.encode())
    tokens = re.compile(rb"(?<![^\r\n" + sign + rb'])"[^"]*(?:""[^"]*)*"|(\r\n|\r|\n)')
    return (match for match in tokens.finditer(whole) if match[1] is not None)


def _copy(whole: mmap.mmap, delimiter: str, out: IO[bytes]) -> None:
    at = 0
    for match in _line_ends(whole, delimiter):
        out.write(whole[at : match.start()])
        out.write(b"\n")
        at = match.end()
    out.write(whole[at:])
