# SPDX-License-Identifier: Apache-2.0
"""Values of Paimon's table options that rounds and compactions go by. Options that nobody here knows pass as they are:
the lake table keeps them for whoever reads them.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

from pypaimon.common.options.config_option import ConfigOption
from pypaimon.common.options.core_options import CoreOptions
from pypaimon.common.options.options_utils import OptionsUtils

from lakeward.errors import InvalidTable
from lakeward.lake.given import NUMBER, Allowed
from lakeward.lake.paimon.meta.mapping import LAKE_PREFIX, lake_key
from lakeward.model.table import TablePath

_VALUES = {
    "file.compression": Allowed.of("none", "snappy", "gzip", "lz4", "lz4_raw", "zstd"),
    "manifest.compression": Allowed.of("null", "deflate", "snappy", "zstd", "bzip2", "xz"),
    "metadata.stats-mode": Allowed(r"none|counts|full|truncate\(\d+\)", "none, counts, full or truncate(N)"),
    "num-levels": NUMBER,
    "num-sorted-run.compaction-trigger": NUMBER,
}
"""Of options that are text to Paimon's library: what its writers, and compactions of ours, both take."""


FIXED_OPTIONS: frozenset[str] = CoreOptions.IMMUTABLE_OPTIONS


def check_given(path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
    """Raises `InvalidTable`."""
    for key in (k for k in said if k.startswith(LAKE_PREFIX) and k in properties):
        name, value = lake_key(key), properties[key]
        if name in _VALUES:
            _VALUES[name].check(path, key, value)
        elif (option := _options().get(name)) and isinstance(option.get_clazz(), type):  # it converts no maps
            try:
                OptionsUtils.convert_value(value, option.get_clazz())
            except ValueError as error:
                raise InvalidTable(table=str(path), field=key, value=value, reason=f"Paimon: {error}") from error


@functools.cache
def _options() -> dict[str, ConfigOption]:
    return {o.key(): o for o in vars(CoreOptions).values() if isinstance(o, ConfigOption)}
