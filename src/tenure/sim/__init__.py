"""The deterministic simulator: real asyncio code in virtual time, with faults, all decided by one seed.

A run is a `World`: a kernel that jumps from timer to timer, machines with clocks of their own, a network, and one engine
(a real `MemoryEngine`) that fails as real ones do. Nothing in it asks the real machine, so a seed replays a run, on every
Python from 3.11 on, to the same trace hash.

Code under test gets a `Host` and takes everything from it::

    async def node(host: Host) -> None:                  # runs as one process; returns = it ends
        host.transport.serve(answer)                     # requests; datagrams: send, receive, on_datagram
        journal = host.engine.journal("j")
        while True:
            await host.clock.async_sleep(1)              # or asyncio.sleep: both at this machine's rate
            head = await host.calls.run(journal.head)    # takes time, may fail before or after it took effect

and a scenario says who takes part, what goes wrong and what must hold::

    class Example(Scenario):
        duration_s = 60.0
        faults = FaultProfile(kinds=[FaultKind.CRASH, FaultKind.PARTITION], most=6, until_s=40)

        def setup(self, world: World) -> None:
            for name in ("a", "b", "c"):
                world.node(name, node).start()

        def check(self, world: World) -> None:           # after each recorded event
            self.require(..., "a promise, as a sentence")

        def finish(self, world: World) -> None: ...      # at the end, with all faults over

    run_seeds(Example, range(1_000)).require_ok()        # a failure shows its seed, fewest faults and replay command

`run(coroutine)` is `asyncio.run` in virtual time, for tests that need nothing else. See docs/simulator.md.
"""

from __future__ import annotations

from tenure.sim.endpoint import Datagram, Transport
from tenure.sim.faults import Fault, FaultKind, FaultProfile, schedule, table
from tenure.sim.kernel import Limits
from tenure.sim.network import ENGINE, Disturbance, NetworkCut, NetworkLink
from tenure.sim.runner import Report, run_seeds, story
from tenure.sim.scenario import RunOutcome, Scenario, find, run_one
from tenure.sim.world import Host, Node, Program, World, run

__all__ = [
    "ENGINE",
    "Datagram",
    "Disturbance",
    "Fault",
    "FaultKind",
    "FaultProfile",
    "Host",
    "Limits",
    "NetworkCut",
    "NetworkLink",
    "Node",
    "Program",
    "Report",
    "RunOutcome",
    "Scenario",
    "Transport",
    "World",
    "find",
    "run",
    "run_one",
    "run_seeds",
    "schedule",
    "story",
    "table",
]
