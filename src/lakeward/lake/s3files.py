# SPDX-License-Identifier: Apache-2.0
"""A table's files in an object store with conditional puts: no commit can replace another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cached_property, lru_cache
from typing import Any

import pyarrow.fs as fs

from lakeward.errors import InvalidConfig
from lakeward.lake.allowedpaths import AllowedFiles, AllowedPaths, parse_locations
from lakeward.lake.metadatabounds import MetadataBounds
from lakeward.lake.tablefiles import LocalFiles, TableFiles, inside, plain_path
from lakeward.spi import StoredFile

S3_OPTIONS = ("s3.endpoint", "s3.region", "s3.access-key", "s3.secret-key", "s3.security-token")
_TAKEN = (409, 412)
"""Answers of a store if the object exists already."""


class S3Files(TableFiles):
    def __init__(self, options: Mapping[str, str]) -> None:
        try:
            import boto3
        except ModuleNotFoundError as error:
            reason = "a lake on S3 needs boto3 for its commits: pip install 'boto3>=1.36'"
            raise InvalidConfig(where="the lake's warehouse", reason=reason) from error
        self._options = dict(options)
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=options.get("s3.endpoint"),
            region_name=options.get("s3.region"),
            aws_access_key_id=options.get("s3.access-key"),
            aws_secret_access_key=options.get("s3.secret-key"),
            aws_session_token=options.get("s3.security-token"),
        )

    @cached_property
    def filesystem(self) -> fs.FileSystem:
        """Opens a client. Credentials that are not configured come from the environment, as the client does."""
        given = {
            "access_key": self._options.get("s3.access-key"),
            "secret_key": self._options.get("s3.secret-key"),
            "session_token": self._options.get("s3.security-token"),
            "region": self._options.get("s3.region") or os.environ.get("AWS_REGION"),
            "endpoint_override": self._options.get("s3.endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3"),
        }
        return fs.S3FileSystem(**{key: value for key, value in given.items() if value})

    def read_bytes(self, path: str, limit: int | None = None) -> bytes | None:
        bucket, key = _parts(path)
        with (
            _os_errors(),
            suppress(self._client.exceptions.NoSuchKey),
            closing(self._client.get_object(Bucket=bucket, Key=key)["Body"]) as body,
        ):
            return bytes(body.read(limit))
        return None

    def names(self, folder: str) -> list[str]:
        bucket, key = _parts(f"{folder}/")
        pages = self._pages(Bucket=bucket, Prefix=key, Delimiter="/")
        return [o["Key"].removeprefix(key) for page in pages for o in page.get("Contents", ())]

    def put_exclusively(self, path: str, data: str | bytes) -> bool:
        """Puts an object if none exists. If the answer to a put was lost, the client sends it again and finds its own
        object."""
        from botocore.exceptions import ClientError

        (bucket, key), body = _parts(path), data.encode() if isinstance(data, str) else data
        with _os_errors():
            try:
                self._client.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] not in _TAKEN:
                    raise
                return self.read_bytes(path) == body
        return True

    def put(self, path: str, data: str | bytes) -> None:
        bucket, key = _parts(path)
        with _os_errors():
            self._client.put_object(Bucket=bucket, Key=key, Body=data.encode() if isinstance(data, str) else data)

    def delete(self, path: str) -> int:
        bucket, key = _parts(path)
        size = self._head(path, "ContentLength") or 0
        with _os_errors():
            self._client.delete_object(Bucket=bucket, Key=key)
        return int(size)

    def made_at(self, path: str) -> int | None:
        at = self._head(path, "LastModified")
        return None if at is None else int(at.timestamp())

    def modified_at_ms(self, path: str) -> int | None:
        at = self._head(path, "LastModified")
        return None if at is None else int(at.timestamp() * 1_000)

    def stamp(self, path: str) -> str | None:
        tag = self._head(path, "ETag")
        return None if tag is None else str(tag)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        bucket, key = _parts(f"{folder}/")
        for page in self._pages(Bucket=bucket, Prefix=key):
            for found in page.get("Contents", ()):
                path, modified = f"s3://{bucket}/{found['Key']}", int(found["LastModified"].timestamp() * 1_000)
                yield StoredFile(path=path, size_bytes=int(found["Size"]), modified_at_ms=modified)

    def _head(self, path: str, what: str) -> Any:
        from botocore.exceptions import ClientError

        bucket, key = _parts(path)
        with _os_errors():
            try:
                return self._client.head_object(Bucket=bucket, Key=key)[what]
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                    raise
        return None

    def _pages(self, **query: str) -> Iterator[Any]:
        with _os_errors():
            yield from self._client.get_paginator("list_objects_v2").paginate(**query)


@contextmanager
def _os_errors() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _parts(path: str) -> tuple[str, str]:
    bucket, _, key = inside(path).partition("/")
    return bucket, key


@lru_cache(maxsize=16)
def _s3(options: tuple[tuple[str, str], ...]) -> S3Files:
    return S3Files(dict(options))


def files_of(lake_table: Any) -> AllowedFiles:
    """Returns the files of a table of Paimon's library."""
    inner = files_at(plain_path(str(lake_table.table_path)), lake_table.file_io.properties.to_map())
    bounds = MetadataBounds.parse(lake_table.file_io.properties.to_map())
    return AllowedFiles(inner, allowed_of(lake_table), bounds)


def allowed_of(lake_table: Any) -> AllowedPaths:
    options, where = lake_table.file_io.properties.to_map(), plain_path(str(lake_table.table_path))
    warehouse = plain_path(str(options.get("warehouse", "")))
    return AllowedPaths(lake_table.identifier.get_full_name(), where, warehouse, parse_locations(options))


def files_at(path: str, options: Mapping[str, Any]) -> TableFiles:
    if not path.startswith("s3://"):
        return LocalFiles()
    return _s3(tuple(sorted((k, str(v)) for k, v in options.items() if k.startswith("s3."))))
