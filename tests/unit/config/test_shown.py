# SPDX-License-Identifier: Apache-2.0
"""What of a lake's settings is told to others."""

from __future__ import annotations

import pytest

from lakeward.config import resolve
from lakeward.config.shown import shown_options
from lakeward.errors import without_login

SECRETS = {
    "uri": "postgresql+psycopg2://lake:hunter2@db.example/catalog?password=hunter2",
    "adls.connection-string": "AccountKey=hunter2",
    "header.x-api-key": "hunter2",
    "s3.access-key-id": "hunter2",
    "s3.secret-access-key": "hunter2",
    "gcs.oauth2.token": "hunter2",
    "anything-new": "hunter2",
    "s3.proxy-uri": "http://me:hunter2@proxy:3128",
}


def test_only_what_is_on_the_list_and_no_login() -> None:
    shown = shown_options({**SECRETS, "warehouse": "s3://lake/w", "s3.region": "eu"})
    assert shown == {
        "uri": "postgresql+psycopg2://db.example/catalog",
        "warehouse": "s3://lake/w",
        "s3.region": "eu",
        "s3.proxy-uri": "http://proxy:3128",
    }
    assert shown_options({"my.option": "x"}, ["my.option"]) == {"my.option": "x"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot reach http://u:p@h:1/x now", "cannot reach http://h:1/x now"),
        ("s3://key:secret@bucket/a and hdfs://n/b", "s3://bucket/a and hdfs://n/b"),
        ("mail a@b.c", "mail a@b.c"),
        ("http://h/x@y", "http://h/x@y"),
    ],
)
def test_logins_are_taken_out_of_any_text(text: str, shown: str) -> None:
    assert without_login(text) == shown


def test_the_configuration_that_people_see() -> None:
    given = {f"datalake.iceberg.{k}": v for k, v in SECRETS.items()} | {"datalake.format": "iceberg"}
    rows = {row.key: row.text for row in resolve(arguments=given, environment={}).resolved()}
    assert not any("hunter2" in text for text in rows.values()), rows
