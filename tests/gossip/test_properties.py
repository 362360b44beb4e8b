"""What holds whatever happens: a pool that Hypothesis drives through loss, pauses, deaths, partitions and forgeries."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.gossip.lean_pool import LeanPool
from tests.soak import sized

from tenure.gossip.messages import Alive, Dead, MemberState, Suspect
from tenure.gossip.settings import GossipSettings
from tenure.gossip.state import MAX_UNNAMED

SIZE = 5
some_node = st.integers(0, SIZE - 1).map(lambda index: f"n{index}")


class PoolMachine(RuleBasedStateMachine):
    """Five nodes. Each keeps what it once was, to compare."""

    @initialize(seed=st.integers(0, 10_000), loss=st.sampled_from([0.0, 0.1, 0.4]))
    def begin(self, seed: int, loss: float) -> None:
        self.pool = LeanPool(SIZE, GossipSettings.lan(rejoin_interval_s=5.0), seed=seed, loss=loss)
        for node in self.pool.nodes.values():
            node.swim.seeds.add([other.swim.me.address for other in self.pool.nodes.values()])
        self.incarnations: dict[str, int] = {}
        self.lost: set[str] = set()
        self.lives = 1

    @rule(seconds=st.floats(0.01, 8.0))
    def time_passes(self, seconds: float) -> None:
        self.pool.run(seconds)

    @rule(name=some_node, seconds=st.floats(0.1, 20.0))
    def one_is_paused(self, name: str, seconds: float) -> None:
        if self.pool.nodes[name].paused_since is None and name not in self.lost:
            self.pool.pause(name, seconds)

    @rule(name=some_node, other=some_node)
    def two_are_cut_off(self, name: str, other: str) -> None:
        if name != other:
            self.pool.cut.add(frozenset((name, other)))

    @rule()
    def the_network_heals(self) -> None:
        self.pool.cut.clear()

    @precondition(lambda self: len(self.lost) < 2)
    @rule(name=some_node)
    def one_is_killed(self, name: str) -> None:
        self.pool.kill(name)
        self.lost.add(name)

    @rule(name=some_node, backwards=st.booleans())
    def one_starts_again_at_its_address(self, name: str, backwards: bool) -> None:
        """With a clock that went on, or that went back: then evidence must raise its incarnation."""
        if name not in self.lost:
            return
        self.lost.discard(name)
        self.lives += 1
        before = self.pool.nodes[name].swim.me
        node = self.pool.add(
            name,
            before.address,
            incarnation=1 if backwards else before.incarnation + 10,
            start_id=f"s{self.lives}",
        )
        node.swim.seeds.add([other.swim.me.address for other in self.pool.nodes.values()])
        self.incarnations.pop(name, None)
        self.pool.join(name, next(other for other in self.pool.nodes if other != name))

    @rule(
        to=some_node,
        about=some_node,
        by=some_node,
        kind=st.sampled_from([Suspect, Dead]),
        incarnation=st.integers(0, 500),
    )
    def somebody_lies(self, to: str, about: str, by: str, kind: type, incarnation: int) -> None:
        if self.pool.nodes[to].up and about != by:
            source = self.pool.nodes[by].swim.me.address
            swim = self.pool.nodes[to].swim
            self.pool.perform(to, swim.receive(self.pool.now, source, kind(incarnation, about, by)))

    @rule(to=some_node, about=some_node, incarnation=st.integers(0, 500))
    def an_old_life_is_remembered(self, to: str, about: str, incarnation: int) -> None:
        if self.pool.nodes[to].up:
            address = self.pool.nodes[about].swim.me.address
            swim = self.pool.nodes[to].swim
            self.pool.perform(to, swim.receive(self.pool.now, address, Alive(incarnation, about, address, b"old")))

    @invariant()
    def each_believes_that_it_lives(self) -> None:
        for name, node in self.pool.nodes.items():
            assert node.swim.me.state is MemberState.ALIVE, name

    @invariant()
    def incarnations_never_fall_within_a_life(self) -> None:
        for name, node in self.pool.nodes.items():
            mine = node.swim.me.incarnation
            assert mine >= self.incarnations.get(name, 0)
            self.incarnations[name] = mine

    @invariant()
    def a_suspect_has_a_suspicion_and_nobody_else_has(self) -> None:
        for node in self.pool.nodes.values():
            for member in node.swim.members:
                assert (member.state is MemberState.SUSPECT) == (member.suspicion is not None)
                if member.suspicion is not None:
                    assert node.swim.next_due <= member.suspicion.deadline

    @invariant()
    def what_is_kept_is_bounded(self) -> None:
        for node in self.pool.nodes.values():
            assert len(node.swim.members) <= SIZE
            assert node.swim.queued <= SIZE + MAX_UNNAMED
            assert 0 <= node.swim.awareness <= 7

    def teardown(self) -> None:
        """In the end the network heals, and all who live find each other, however they were parted."""
        if not hasattr(self, "pool"):
            return
        self.pool.cut.clear()
        self.pool.loss = self.pool.stream_loss = 0.0
        living = [name for name, node in self.pool.nodes.items() if node.up]
        self.pool.run_until(lambda: all(self.agree(name, living) for name in living), most=200.0)

    def agree(self, name: str, living: list[str]) -> bool:
        seen = {member.name for member in self.pool.nodes[name].swim.members if member.state is MemberState.ALIVE}
        return seen == set(living)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(
    max_examples=sized("histories of a gossip pool", short=40, long=400),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
