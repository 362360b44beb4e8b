"""Which server the tests use: a private one, or another that an environment variable names.

Tests purge, kill and restart their servers. On a server that is not ours they may only make and remove what is their own,
so whatever kills or restarts asks for `private` and is skipped, with the variable's name as the reason.
"""

from __future__ import annotations

import os

# kind: the variable that names another server
VARIABLES = {
    "postgres": "TENURE_TEST_POSTGRES_URL",
    "valkey": "TENURE_TEST_VALKEY_URL",
    "redis": "TENURE_TEST_REDIS_URL",
    "nats": "TENURE_TEST_NATS_URL",
    "nats-cluster": "TENURE_TEST_NATS_CLUSTER_URL",
}


def other(kind: str) -> str | None:
    """The URL of the server to use instead of a private one."""
    return os.environ.get(VARIABLES[kind]) or None


def why_not_private(kind: str) -> str:
    return f"{VARIABLES[kind]} names a server that is not ours to kill, restart or purge"
