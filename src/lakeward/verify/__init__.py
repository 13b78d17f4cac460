# SPDX-License-Identifier: Apache-2.0
"""The certificate: ledger against lake against hot store. `verify_table` is the door."""

from lakeward.verify.certificate import Certificate, Finding
from lakeward.verify.table import verify_table

__all__ = ["Certificate", "Finding", "verify_table"]
