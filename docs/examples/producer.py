# SPDX-License-Identifier: Apache-2.0
"""A producer and a consumer. Start `lakeward server` first, then: python docs/examples/producer.py [URL]"""

import random
import sys
from datetime import UTC, datetime

import lakeward

client = lakeward.connect(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9050")
clicks = client.create_table(
    "web.clicks",
    "at TIMESTAMP_LTZ(3) NOT NULL, user_id BIGINT NOT NULL, page STRING",
    buckets=2,
    bucket_key="user_id",
    if_not_exists=True,
)

# Rows are gathered and sent in the background; leaving the block waits until all of them are on the server's disk.
with clicks.writer() as writer:
    for _ in range(10_000):
        writer.append({"at": datetime.now(UTC).replace(microsecond=0), "user_id": random.randrange(100), "page": "/home"})
    token = writer.flush()
print("written up to", token.offsets)

# Follow the table from its beginning; stop when nothing new came for a second.
count = sum(batch.num_rows for batch in clicks.subscribe("earliest", idle_s=1.0))
print("read back", count, "rows")
client.close()
