# SPDX-License-Identifier: Apache-2.0
"""Services that all tables of a store share."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.config import options as option
from lakeward.hot.embedded.datafolder import DataFolder
from lakeward.hot.embedded.disk import DiskReserve
from lakeward.hot.embedded.kv.database import KvResources
from lakeward.hot.embedded.log.remote import RemoteTier, default_uri
from lakeward.hot.embedded.metadb import MetaDb
from lakeward.hot.embedded.openfiles import OpenFiles, default_budget
from lakeward.hot.embedded.options import StoreOptions
from lakeward.model import Ballast, Clock


@dataclass(frozen=True, kw_only=True)
class StoreServices:
    """`remote` None: the remote log is switched off."""

    folder: DataFolder
    meta: MetaDb
    options: StoreOptions
    clock: Clock
    reserve: DiskReserve
    remote: RemoteTier | None
    kv: KvResources
    open_files: OpenFiles
    ballast: Ballast

    @classmethod
    def open(cls, folder: DataFolder, options: StoreOptions, clock: Clock, ballast: Ballast) -> StoreServices:
        handles = options.handles or default_budget()
        uri = options.remote_uri or default_uri(folder.path)
        return cls(
            folder=folder,
            meta=MetaDb(folder.path / "meta.db", ballast),
            options=options,
            clock=clock,
            reserve=DiskReserve(folder.path, options.reserve_bytes, options.free_bytes),
            remote=RemoteTier(uri) if options.remote_log else None,
            kv=KvResources(
                options.config.get(option.KV_BLOCK_CACHE_SIZE), table_handles=max(16, handles // 8), ballast=ballast
            ),
            open_files=OpenFiles(handles),
            ballast=ballast,
        )
