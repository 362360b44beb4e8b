"""Tools for users' tests: a manual clock, fakes that fail on demand, fixtures.

    from tenure.testing import FakeMailbox, ManualClock, create_test_message

The pytest plugin brings `tenure_dc`, `tenure_clock`, `tenure_engine` and `tenure_mailbox`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure import lazy_names

if TYPE_CHECKING:
    from tenure.clock import ManualClock as ManualClock
    from tenure.testing.datacenter import TestDatacenter as TestDatacenter
    from tenure.testing.mailbox import FakeEngine as FakeEngine
    from tenure.testing.mailbox import FakeMailbox as FakeMailbox
    from tenure.testing.mailbox import FakeMessage as FakeMessage
    from tenure.testing.mailbox import create_test_message as create_test_message
    from tenure.testing.model import AsyncScriptedAdapter as AsyncScriptedAdapter
    from tenure.testing.model import ScriptedAdapter as ScriptedAdapter

# Imported when asked for: pytest imports this package in every run of everybody who has Tenure installed.
__getattr__ = lazy_names(
    __name__,
    {
        "datacenter": "TestDatacenter",
        "mailbox": "FakeEngine FakeMailbox FakeMessage create_test_message",
        "model": "AsyncScriptedAdapter ScriptedAdapter",
        "tenure.clock": "ManualClock",
    },
)
