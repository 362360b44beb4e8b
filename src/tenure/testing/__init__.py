"""Tools for users' tests: a manual clock, fakes that fail on demand, fixtures.

    from tenure.testing import FakeMailbox, ManualClock, create_test_message

The pytest plugin brings `tenure_dc`, `tenure_clock`, `tenure_engine` and `tenure_mailbox`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.clock import ManualClock
    from tenure.testing.datacenter import TestDatacenter
    from tenure.testing.mailbox import FakeEngine, FakeMailbox, FakeMessage, create_test_message
    from tenure.testing.model import AsyncScriptedAdapter, ScriptedAdapter

__all__ = [
    "AsyncScriptedAdapter",
    "FakeEngine",
    "FakeMailbox",
    "FakeMessage",
    "ManualClock",
    "ScriptedAdapter",
    "TestDatacenter",
    "create_test_message",
]

# Imported when asked for: pytest imports this package in every run of everybody who has Tenure installed.
_HOMES = {
    "AsyncScriptedAdapter": "tenure.testing.model",
    "ScriptedAdapter": "tenure.testing.model",
    "ManualClock": "tenure.clock",
    "TestDatacenter": "tenure.testing.datacenter",
    "FakeEngine": "tenure.testing.mailbox",
    "FakeMailbox": "tenure.testing.mailbox",
    "FakeMessage": "tenure.testing.mailbox",
    "create_test_message": "tenure.testing.mailbox",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
