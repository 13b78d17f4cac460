# SPDX-License-Identifier: Apache-2.0
"""`python -m lakeward.cli` is `lakeward`."""

from lakeward.cli import main

main()
