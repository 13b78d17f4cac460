# SPDX-License-Identifier: Apache-2.0
"""Tables that Fluss hands out to a job: heartbeats, what is held back or given back, and compactions between rounds."""
