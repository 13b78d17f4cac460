# SPDX-License-Identifier: Apache-2.0
"""What a Spark session needs so that Hudi's own code runs in it: the series of Spark, and settings."""

from __future__ import annotations

import re
from pathlib import Path

from lakeward.errors import SparkUnsupported
from lakeward.lake.hudi.spark.bundle import SPARK

POOL = "hudi"
"""Jobs of this pool have Hudi's own code in their session."""

INSTALL = "python3.11 -m venv hudi-pool && hudi-pool/bin/pip install 'lakeward[hudi-pool]'"
START = f"hudi-pool/bin/lakeward tier --pool {POOL}"
"""As docs/install.md has it."""

JARS = "spark.jars"
EXTENSIONS = "spark.sql.extensions"


def spark_conf(jar: Path) -> dict[str, str]:
    """Settings of a session with Hudi in it. Pure."""
    return {
        JARS: str(jar),
        EXTENSIONS: "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.driver.memory": "2g",
    }


def check_spark(pyspark_version: str) -> None:
    """Raises `SparkUnsupported` for a PySpark that no bundle of Hudi exists for. Pure."""
    if ".".join(re.findall(r"\d+", pyspark_version)[:2]) != SPARK:
        raise SparkUnsupported(
            what=f"pool {POOL} on PySpark {pyspark_version}",
            reason=f"Hudi's own code exists for PySpark {SPARK} alone, which has an environment of its own: {INSTALL}, "
            f"then {START}; rounds of Hudi tables run on this PySpark too, in a job of another pool",
        )
