# SPDX-License-Identifier: Apache-2.0
"""Which of a lake's settings may be shown and told to peers: those on a list, and no URI with a login in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit, urlunsplit

from lakeward.errors import without_login

SHOWN = (
    "name",
    "type",
    "uri",
    "warehouse",
    "allowed-properties",
    "allowed-locations",
    "max-metadata-bytes",
    "catalog-impl",
    "py-catalog-impl",
    "io-impl",
    "py-io-impl",
    "ref",
    "prefix",
    "namespace-separator",
    "client.region",
    "client.factory",
    "s3.endpoint",
    "s3.region",
    "s3.path-style-access",
    "s3.force-virtual-addressing",
    "s3.proxy-uri",
    "s3.connect-timeout",
    "s3.request-timeout",
    "glue.region",
    "glue.endpoint",
    "glue.id",
    "dynamodb.region",
    "dynamodb.table-name",
    "gcs.project-id",
    "gcs.service.host",
    "adls.account-name",
    "adls.account-host",
    "adls.blob-storage-authority",
    "hdfs.host",
    "hdfs.port",
    "hive.hive2-compatible",
    "rest.sigv4-enabled",
    "rest.signing-region",
    "rest.signing-name",
    "rest.authorization-url",
    "oauth2-server-uri",
    "scope",
    "audience",
    "resource",
    "init_catalog_tables",
    "pool_pre_ping",
    "header.X-Iceberg-Access-Delegation",
)
"""Where a lake is and how to talk to it. Whatever is not here may be a secret, and jobs and readers bring their own."""


def shown_options(settings: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Settings of a lake that peers may see; `more`: names that the operator adds to the list."""
    allowed = {*SHOWN, *more}
    return {k: shown_value(v) for k, v in settings.items() if k in allowed}


def shown_value(text: str) -> str:
    return _without_query(without_login(text)) if "://" in text else text


def _without_query(uri: str) -> str:
    scheme, place, path, _, _ = urlsplit(uri)
    return urlunsplit((scheme, place, path, "", "")) if scheme and "?" in uri else uri


SENSITIVE_NAMES = "(?i)secret|password|token|credential|key|sas|authorization"
"""Wide on purpose: a value that is hidden without need costs a look into the file it is from. Java reads it too."""

_SECRET = re.compile(SENSITIVE_NAMES)


def looks_secret(key: str) -> bool:
    return _SECRET.search(key) is not None
