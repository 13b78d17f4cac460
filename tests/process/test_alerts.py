# SPDX-License-Identifier: Apache-2.0
"""Every alert rule fires on the series that it is for, by Prometheus's own rule tester, and on no others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

RULES = Path(__file__).parents[2] / "docs" / "operating" / "alerts.yml"
TABLE = '{database="shop",table="orders"}'
FIRING: dict[str, tuple[dict[str, str], str]] = {
    "LakewardTableLate": ({f"lakeward_lag{TABLE}": "5000x90", f"lakeward_freshness{TABLE}": "1000x90"}, "30m"),
    "LakewardRoundTooLong": (
        {f"lakeward_tier_duration{TABLE}": "900x90", f"lakeward_freshness{TABLE}": "1000x90"},
        "30m",
    ),
    "LakewardTableQuarantined": ({"lakeward_quarantined_tables_count": "1x90"}, "5m"),
    "LakewardRoundsFail": ({f"lakeward_failures_total{TABLE}": "0+1x90"}, "30m"),
    "LakewardJobMissing": ({"lakeward_jobs_live": "1x90", "lakeward_jobs_expected": "2x90"}, "30m"),
    "LakewardQueueGrows": ({"lakeward_pending_tables_count": "5+1x90", "lakeward_slots": "4x90"}, "30m"),
    "LakewardManyFiles": ({f"lakeward_file_count{TABLE}": "6000x90"}, "5m"),
    "LakewardRemoteLogGrows": (
        {
            f"lakeward_remote_log_bytes{TABLE}": "0+1000x180",
            f"lakeward_lag{TABLE}": "5000x180",
            f"lakeward_freshness{TABLE}": "1000x180",
        },
        "150m",
    ),
    "LakewardBucketStopped": ({f"lakeward_stopped_buckets{TABLE}": "1x90"}, "5m"),
    "LakewardStandsStill": ({'lakeward_background_thread_well{thread="upkeep"}': "0x90"}, "30m"),
    "LakewardSilent": ({}, "30m"),
}
HEALTHY = {"lakeward_jobs_live": "2x180", "lakeward_jobs_expected": "2x180", "lakeward_slots": "4x180"}


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool on this machine (apt install prometheus)")
    return found


def test_each_rule_fires_once(tmp_path: Path) -> None:
    tool = promtool()
    assert set(FIRING) == set(re.findall(r"alert: (\w+)", RULES.read_text()))
    cases = []
    for alert, (series, at) in FIRING.items():
        others = {} if alert == "LakewardSilent" else {**HEALTHY, **series}
        values = [{"series": name, "values": _values(value)} for name, value in others.items()]
        cases.append({"interval": "1m", "input_series": values, "promql_expr_test": [_fires(alert, at)]})
    healthy = [{"series": name, "values": _values(value)} for name, value in HEALTHY.items()]
    silent = {
        "expr": 'count(ALERTS{alertstate="firing"}) or vector(0)',
        "eval_time": "30m",
        "exp_samples": [{"labels": "{}", "value": 0}],
    }
    cases.append({"interval": "1m", "input_series": healthy, "promql_expr_test": [silent]})
    tests = tmp_path / "tests.yml"
    tests.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}))
    done = subprocess.run([tool, "test", "rules", str(tests)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _fires(alert: str, at: str) -> dict[str, Any]:
    expr = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return {"expr": expr, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]}


def _values(text: str) -> str:
    """`5x90` is five, ninety-one times, as promtool spells it."""
    return text if "+" in text else text.replace("x", "+0x")
