# SPDX-License-Identifier: Apache-2.0
"""Jars with which Spark reads s3a:// by itself: hadoop-aws of Spark's own Hadoop and the few modules of AWS's SDK that
it uses.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from lakeward.config.cache import cache_folder

HADOOP, SDK = "3.5.0", "2.35.4"
MODULES = ("s3", "s3-transfer-manager", "sts", "url-connection-client")
MISSING = (
    "org.apache.hadoop",
    "software.amazon.awssdk",
    "software.amazon.eventstream",
    "software.amazon.s3.analyticsaccelerator",
)
"""Groups that Spark does not bring; the rest of what Maven would fetch is among its own jars, in newer versions."""

MORE = ("org.reactivestreams", "org.wildfly.openssl")


def _dependency(group: str, name: str, version: str, body: str = "") -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{body}</dependency>"
    )


def _project() -> str:
    bundle = (
        "<exclusions><exclusion><groupId>software.amazon.awssdk</groupId><artifactId>bundle</artifactId>"
        "</exclusion></exclusions>"
    )
    wanted = _dependency("org.apache.hadoop", "hadoop-aws", HADOOP, bundle)
    wanted += "".join(_dependency("software.amazon.awssdk", name, SDK) for name in MODULES)
    own = "<modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>jars</artifactId><version>1</version>"
    return f'<project xmlns="http://maven.apache.org/POM/4.0.0">{own}<dependencies>{wanted}</dependencies></project>'


def load_jars() -> list[Path]:
    """Fetched once by mvn, 15 MB, and kept in the cache folder."""
    folder = cache_folder() / f"hadoop-aws-{HADOOP}"
    done = folder / "done"
    if not done.exists():
        with tempfile.TemporaryDirectory() as project:
            (Path(project) / "pom.xml").write_text(_project())
            copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
            groups = f"-DincludeGroupIds={','.join((*MISSING, *MORE))}"
            command = ["mvn", "-q", "-B", copy, "-DincludeScope=runtime", groups, f"-DoutputDirectory={folder}"]
            subprocess.run(command, check=True, cwd=project)
        done.touch()
    return sorted(folder.glob("*.jar"))
