# SPDX-License-Identifier: Apache-2.0
"""What a commit of a Hudi table stands on, how it lands, and which snapshots may go."""
