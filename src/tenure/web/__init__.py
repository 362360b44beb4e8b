"""The HTTP API, the dashboard and the metrics."""
