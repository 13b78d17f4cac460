# SPDX-License-Identifier: Apache-2.0
"""`lakeward doctor` and `lakeward preflight`: facts are gathered, checks look at them, nothing is changed.

A check is one file with `check(facts)`, and one line in `registry`."""
