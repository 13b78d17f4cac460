# SPDX-License-Identifier: Apache-2.0
"""Kafka: one Spark Structured Streaming job for many topics."""
