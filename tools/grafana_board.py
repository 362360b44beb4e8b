"""Write deploy/grafana/tenure.json: the board as a table of panels here, so that a person can read and change it.

python tools/grafana_board.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BOARD = Path(__file__).resolve().parent.parent / "deploy/grafana/tenure.json"
# title, kind, unit, queries with their legends
PANELS: list[tuple[str, str, str, dict[str, str]]] = [
    ("Alarms that stand", "stat", "none", {"alarms": "count(tenure_alarm > 0) or vector(0)"}),
    ("Managers that lead", "stat", "none", {"leaders": "sum(tenure_manager_leads)"}),
    ("Attempts open", "timeseries", "none", {"{{state}}": "sum by (state) (tenure_attempts_open)"}),
    (
        "Jobs that ended, a second",
        "timeseries",
        "ops",
        {"{{state}}": "sum by (state) (rate(tenure_jobs_ended_total[5m]))"},
    ),
    ("Jobs accepted, a second", "timeseries", "ops", {"accepted": "sum(rate(tenure_jobs_submitted_total[5m]))"}),
    ("Oldest work that waits", "timeseries", "s", {"{{lane}}": "max by (lane) (tenure_lane_oldest_seconds)"}),
    (
        "Pick-up, from dispatch to start",
        "timeseries",
        "s",
        {
            "half": "histogram_quantile(0.5, sum by (le) (rate(tenure_pick_up_seconds_bucket[5m])))",
            "99 of 100": "histogram_quantile(0.99, sum by (le) (rate(tenure_pick_up_seconds_bucket[5m])))",
        },
    ),
    (
        "Attempts by their ending",
        "timeseries",
        "ops",
        {"{{ending}}": "sum by (ending) (rate(tenure_attempts_total[5m]))"},
    ),
    ("Slots", "timeseries", "none", {"{{state}}": "sum by (state) (tenure_worker_slots)"}),
    ("Workers by verdict", "timeseries", "none", {"{{verdict}}": "sum by (verdict) (tenure_workers)"}),
    (
        "Longest silence of a worker's work",
        "timeseries",
        "s",
        {"{{instance}}": "tenure_worker_longest_silence_seconds"},
    ),
    ("Requests for time", "timeseries", "ops", {"{{answer}}": "sum by (answer) (rate(tenure_extensions_total[5m]))"}),
    ("Evictions", "timeseries", "none", {"evictions": "sum(increase(tenure_evictions_total[5m]))"}),
    (
        "State of its budget",
        "timeseries",
        "percentunit",
        {"used": "max(tenure_state_bytes / tenure_state_budget_bytes)"},
    ),
    (
        "Round trips to the engine",
        "timeseries",
        "s",
        {"99 of 100": "histogram_quantile(0.99, sum by (le) (rate(tenure_engine_operation_seconds_bucket[5m])))"},
    ),
    (
        "Requests to the ports",
        "timeseries",
        "ops",
        {"{{status}}": "sum by (status) (rate(tenure_http_requests_total[5m]))"},
    ),
]


def board() -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "prometheus"}
    panels = []
    for number, (title, kind, unit, queries) in enumerate(PANELS):
        place = {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8}
        targets = [
            {"refId": chr(65 + index), "expr": query, "legendFormat": legend, "datasource": source}
            for index, (legend, query) in enumerate(queries.items())
        ]
        panels.append(
            {
                "id": number + 1,
                "title": title,
                "type": kind,
                "gridPos": place,
                "datasource": source,
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": targets,
            }
        )
    return {
        "uid": "tenure",
        "title": "Tenure",
        "tags": ["tenure"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "panels": panels,
    }


def main() -> int:
    text = json.dumps(board(), indent=1) + "\n"
    if "--check" in sys.argv:
        current = BOARD.exists() and BOARD.read_text() == text
        print("" if current else "deploy/grafana/tenure.json is not current: run python tools/grafana_board.py", end="")
        return 0 if current else 1
    BOARD.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
