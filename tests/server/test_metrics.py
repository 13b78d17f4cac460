# SPDX-License-Identifier: Apache-2.0
"""What the Grafana dashboard, the alert rules and the docs call by name is what a real server and job show."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from lakeward.tiering.job.metrics import JobMetrics
from tests.kit.serverprocess import ServerProcess

OPERATING = Path(__file__).parents[2] / "docs" / "operating"
NAME = re.compile(r"lakeward_[a-z_]+")


def shown(text: str) -> set[str]:
    """Names as one writes them in a query: counters with their `_total`."""
    found = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        found.add(name if kind != "counter" or name.endswith("_total") else f"{name}_total")
    return found


def test_every_metric_that_is_written_about_exists_and_every_one_that_exists_is_written_about(
    shared_server: ServerProcess,
) -> None:
    shared_server.client().create_table("shop.t", "id bigint").append([{"id": 1}, {"id": 2}])
    text = httpx.get(f"{shared_server.url}/metrics", timeout=120).text
    server = shown(text)
    panels = json.loads((OPERATING / "grafana.json").read_text())["panels"]
    queries = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    assert set(NAME.findall(queries)) <= server
    rules = re.findall(r"expr: (.*)", (OPERATING / "alerts.yml").read_text())
    assert len(rules) >= 10
    assert set(NAME.findall(" ".join(rules))) <= server
    assert set(NAME.findall((OPERATING / "metrics.md").read_text())) == server | shown(JobMetrics().render())
    assert 'lakeward_rows_in_total{database="shop",table="t"} 2.0' in text
    assert re.search(r'lakeward_bytes_in_total\{database="shop",table="t"\} [1-9]', text)


def test_alert_rules_say_what_to_do() -> None:
    text = (OPERATING / "alerts.yml").read_text()
    assert text.count("- alert:") == text.count("action:") == text.count("summary:")
