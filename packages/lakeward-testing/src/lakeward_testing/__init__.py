# SPDX-License-Identifier: Apache-2.0
"""The public test kit: a clock moved by hand, faults to inject, waiting on conditions, contract suites for plugins."""

from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Fault, Faults
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until

__all__ = ["Fault", "Faults", "ManualClock", "free_port", "wait_until"]
