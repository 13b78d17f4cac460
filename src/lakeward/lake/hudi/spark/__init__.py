# SPDX-License-Identifier: Apache-2.0
"""What Hudi's own code on Spark needs."""
