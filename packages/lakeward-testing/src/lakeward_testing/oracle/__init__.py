# SPDX-License-Identifier: Apache-2.0
"""The oracle (`run.run_oracle`): a real server and two jobs, other engines on the same lake tables, kills and pauses;
after every step the rows that readers show are compared with a dict that shares no code with Lakeward.
"""
