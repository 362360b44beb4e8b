"""Where work and decisions live. `Engine.open(url)` is the way in; `contracts` says what every engine promises, and has all its names.

An engine is imported when it is asked for: `import tenure` stays fast.
"""

from typing import TYPE_CHECKING

from tenure import lazy_names

if TYPE_CHECKING:
    from tenure.engines.contracts import Engine as Engine
    from tenure.engines.contracts import Mailbox as Mailbox
    from tenure.engines.contracts import Outgoing as Outgoing
    from tenure.engines.memory import InMemoryMailbox as InMemoryMailbox
    from tenure.engines.memory import MemoryEngine as MemoryEngine

__getattr__ = lazy_names(__name__, {"contracts": "Engine Mailbox Outgoing", "memory": "InMemoryMailbox MemoryEngine"})
