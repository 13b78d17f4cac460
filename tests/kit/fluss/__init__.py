# SPDX-License-Identifier: Apache-2.0
"""A local Apache Fluss cluster for people and tests: ZooKeeper, a coordinator and tablet servers as plain Java
processes.
"""
