# SPDX-License-Identifier: Apache-2.0
"""When which table gets a round: deadlines, estimates, look-ahead, admission, and the simulator that tries them."""
