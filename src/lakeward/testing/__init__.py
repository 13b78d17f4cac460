# SPDX-License-Identifier: Apache-2.0
"""The public test kit: a clock moved by hand, faults to inject, waiting on conditions, contract suites for plugins."""

from lakeward.testing.clock import ManualClock
from lakeward.testing.faults import Fault, Faults
from lakeward.testing.ports import free_port
from lakeward.testing.waiting import wait_until

__all__ = ["Fault", "Faults", "ManualClock", "free_port", "wait_until"]
