"""Serves the control plane over HTTP: it admits callers, reads requests, writes replies and streams of events, and publishes the OpenAPI document."""
