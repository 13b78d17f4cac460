# SPDX-License-Identifier: Apache-2.0
"""`python -m lakeward.tiering` is `lakeward tier`."""

import sys

from lakeward.tiering.job.arguments import main

if __name__ == "__main__":
    sys.exit(main())
