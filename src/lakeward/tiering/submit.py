# SPDX-License-Identifier: Apache-2.0
"""A script that spark-submit can name: `spark-submit [--archives env.tar.gz#env] .../lakeward/tiering/submit.py
--server URL`.
"""

import sys

from lakeward.tiering.job.arguments import main

if __name__ == "__main__":
    sys.exit(main())
