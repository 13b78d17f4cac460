# SPDX-License-Identifier: Apache-2.0
"""One data file: where it lies, how it is written, what is known of its offsets."""
