from __future__ import annotations

from prometheus_client import CollectorRegistry

from tenure.engines.checked_handles import OperationMetrics
from tenure.errors import MailboxConnectionError


def test_operations_are_timed_and_errors_counted_by_class() -> None:
    registry = CollectorRegistry()
    metrics, second = OperationMetrics("postgres", registry), OperationMetrics("postgres", registry)
    metrics.took("send", 0.002)
    second.took("send", 0.003)
    metrics.failed("claim", MailboxConnectionError("gone"))
    labels = {"engine": "postgres", "operation": "send"}
    assert registry.get_sample_value("tenure_engine_operation_seconds_count", labels) == 2
    assert registry.get_sample_value("tenure_engine_operation_seconds_sum", labels) == 0.005
    labels = {"engine": "postgres", "operation": "claim", "error": "MailboxConnectionError"}
    assert registry.get_sample_value("tenure_engine_errors_total", labels) == 1
