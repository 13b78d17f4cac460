# SPDX-License-Identifier: Apache-2.0
"""The gate in front of Flight: a small process that owns the public port and looks at every call before gRPC does.

gRPC, as pyarrow builds its Flight server, takes a message of any length whole before anything of ours is asked, and
takes no option against it. So it listens on a socket of the file system that only this user's processes reach, and the
gate passes on to it what has a token and a fit length. Modules of the process (all but `keeper`) import no Arrow: it
starts in a moment and stays small.
"""
