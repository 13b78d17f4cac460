# SPDX-License-Identifier: Apache-2.0
"""What a commit of a Delta table stands on, and which snapshots may go."""
