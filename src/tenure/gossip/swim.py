"""The state machine of one node. Its caller gives it messages and ticks with the time; each call returns the effects to perform.

It does no I/O, asks no clock and draws from a generator that it is given, so a run can be replayed. `next_due` says when it wants the next tick.
`membership_rules` has the rules of belief, `probing` the probes; this module ties them together: the rounds, push/pulls, tags, and leaving.
"""

from __future__ import annotations

from tenure.errors import ConfigurationError
from tenure.gossip.members import PoolMember, Seeds, all_tags, check_user_tags, encode_health_field, encode_tags
from tenure.gossip.membership_rules import MembershipRules
from tenure.gossip.messages import (
    MAX_INCARNATION,
    MAX_NAME_BYTES,
    Ack,
    Address,
    Alive,
    Dead,
    IndirectPing,
    MemberState,
    Message,
    Ping,
    PingNack,
    PushPull,
    StreamRefusal,
    Suspect,
    User,
)
from tenure.gossip.probing import MemberProber, Relays, take_health_field
from tenure.gossip.sealing import Keyring
from tenure.gossip.serf import SerfLayer
from tenure.gossip.settings import GossipSettings, push_pull_scale
from tenure.gossip.state import Complaint, Counters, Effects, MemberChange, PushPullExchange, SkewEstimates, SwimState
from tenure.health.node_states import HealthPiggyback
from tenure.randomness import Random

SERF_LEAVE_DELAY_S = 1.0
"""Serf's agents must hear the intent to leave before memberlist's "dead". Otherwise they show the node as failed."""


class Swim:
    """One node of a pool. Each method that can cause something returns the `Effects`; the caller performs them."""

    def __init__(
        self,
        name: str,
        address: Address,
        settings: GossipSettings,
        *,
        now: float,
        incarnation: int,
        start_id: str,
        random: Random,
        tags: dict[str, str] | None = None,
        packet_overhead: int = 64,
        counters: Counters | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
            raise ConfigurationError(f"the node name {name!r} must have 1 to {MAX_NAME_BYTES} bytes")
        self.counters = counters if counters is not None else Counters()
        self._pool = pool = SwimState(
            name,
            address,
            settings,
            now=now,
            incarnation=min(incarnation, MAX_INCARNATION // 2),
            random=random,
            packet_overhead=packet_overhead,
            counters=self.counters,
        )
        self._rules = MembershipRules(pool)
        self._prober = MemberProber(pool, self._rules)
        self._relays = Relays(pool)
        self._serf = SerfLayer(pool, keyring)
        self.seeds = Seeds(random, settings.remember_failed_s)
        self._user_tags = check_user_tags(tags or {})
        self._start(start_id)
        self._set_rounds(now)

    def _set_rounds(self, now: float) -> None:
        """Sets the first time of each round, at random: nodes that start together should not tick together."""
        settings, random = self._pool.settings, self._pool.random
        self._probe_due = now + random.random() * settings.probe_interval_s
        self._gossip_due = now + random.random() * settings.gossip_interval_s
        self._sync_due = now + random.random() * settings.push_pull_interval_s
        self._rejoin_due = now + (0.5 + random.random()) * settings.rejoin_interval_s
        self._tag_due = now
        self._leave_due = float("inf")  # the time to say "dead" after Serf has heard our intent to leave

    def _start(self, start_id: str) -> None:
        me = self._pool.me
        me.state, me.start_id = MemberState.ALIVE, start_id
        self._pool.roster.add(me)
        self._write_tags()
        self._rules.announce()

    @property
    def me(self) -> PoolMember:
        """This node's own record."""
        return self._pool.me

    @property
    def members(self) -> list[PoolMember]:
        """All members that this node knows; the dead too, until they are reaped."""
        return list(self._pool.roster)

    def member(self, name: str) -> PoolMember | None:
        """Returns the member of that name, if this node knows it."""
        return self._pool.roster.get(name)

    @property
    def others_here(self) -> bool:
        """True when any other node is alive or only suspected."""
        return any(member.is_here and member is not self.me for member in self._pool.roster)

    @property
    def awareness(self) -> int:
        """Lifeguard's score of this node: 0 means that it is well."""
        return self._pool.awareness.score

    @property
    def skew(self) -> SkewEstimates:
        """The estimates of other nodes' clocks."""
        return self._pool.skew

    def health(self, node: str) -> HealthPiggyback | None:
        """Returns the newest health of a node; this node's own for its own name."""
        return self._pool.health.own if node == self.me.name else self._pool.health.of(node)

    @property
    def queued(self) -> int:
        """The number of rumours that wait to be passed on."""
        return len(self._pool.queue)

    @property
    def told_leaving(self) -> bool:
        """True when the news of our leaving has been passed on as often as it should be."""
        return self.me.state is MemberState.LEFT and not self._pool.queue.waits(self.me.name)

    @property
    def next_due(self) -> float:
        """The time at which `tick` has something to do."""
        pool = self._pool
        due = min(self._rules.next_due, self._prober.next_due, self._relays.next_due, self._leave_due)
        if not pool.leaving:
            due = min(due, self._probe_due, self._sync_due, self._rejoin_due)
            if pool.health.tag_is_stale:
                due = min(due, self._tag_due)
        return min(due, self._gossip_due) if pool.queue else due

    def tell_wall(self, offset: float) -> None:
        """Takes Unix time minus `now`. The shell tells it again and again, because somebody may set the clock."""
        self._prober.wall_offset = offset

    def tick(self, now: float) -> Effects:
        """Does everything that is due."""
        pool, settings = self._pool, self._pool.settings
        self._relays.tick(now)
        self._prober.tick(now)
        self._rules.tick(now)
        if now >= self._leave_due:
            self._leave_due = float("inf")
            self._say_dead(now)
        if not pool.leaving:
            if now >= self._probe_due:
                self._probe_due = _next_beat(self._probe_due, settings.probe_interval_s, now)
                self._probe_next(now)
            if now >= self._sync_due:
                self._sync(now)
            if now >= self._rejoin_due:
                self._rejoin(now)
            if pool.health.tag_is_stale and now >= self._tag_due:
                self._tag_health(now)
        if now >= self._gossip_due:
            self._gossip_due = _next_beat(self._gossip_due, settings.gossip_interval_s, now)
            self._gossip(now)
        return self._done()

    def lagged(self, now: float, seconds: float) -> Effects:
        """Takes note that our event loop was late. Every deadline moves by that time, and this node trusts itself less."""
        pool = self._pool
        self.counters.lags += 1
        self.counters.lag_seconds += seconds
        pool.awareness.add(1)
        self._prober.delay(seconds)
        self._relays.delay(seconds)
        self._rules.delay(seconds)
        pool.warn(Complaint.LAGGED, self.me.name, f"our event loop was {seconds:.2f} s late; score {self.awareness}")
        return self._done()

    def _probe_next(self, now: float) -> None:
        """Probes the next member of the ring."""
        if self._prober.busy:
            # A probe takes longer than an interval while our score is bad. The next one starts when it ends.
            self._probe_due = self._prober.next_due
            return
        me = self.me
        member = self._pool.roster.next_in_ring(
            lambda member: member.is_here and member is not me, lambda: self._reap(now)
        )
        if member is not None:
            self._prober.start(now, member)

    def _reap(self, now: float) -> list[PoolMember]:
        """Returns the members that have been gone for long enough to be forgotten, and forgets what we know of them."""
        pool = self._pool
        keep_s = pool.settings.gossip_to_the_dead_s
        gone = [m for m in pool.roster if not m.is_here and m is not pool.me and now - m.changed_at > keep_s]
        for member in gone:
            if member.state is MemberState.DEAD:
                self.seeds.remember(now, member.address)
            pool.health.forget(member.name)
            pool.skew.forget(member.name)
            pool.tell(MemberChange.REAPED, member)
        return gone

    def _gossip(self, now: float) -> None:
        """Sends waiting rumours to a few random members. Those that died a short while ago hear them too, so that they can refute."""
        pool = self._pool
        if not pool.queue:
            return
        me, keep_s = self.me, pool.settings.gossip_to_the_dead_s

        def hears(member: PoolMember) -> bool:
            return member is not me and (
                member.is_here or (member.state is MemberState.DEAD and now - member.changed_at <= keep_s)
            )

        for member in pool.roster.pick(pool.settings.gossip_nodes, hears):
            parts = pool.rumours()
            if not parts:
                return
            pool.send_parts(member.address, parts, member)

    def _sync(self, now: float) -> None:
        """Asks for a push/pull with one random member. Nodes that do not run Tenure get everything, as they expect."""
        pool = self._pool
        self._sync_due = now + pool.settings.push_pull_interval_s * push_pull_scale(len(pool.roster))
        me = self.me
        for member in pool.roster.pick(1, lambda member: member.state is MemberState.ALIVE and member is not me):
            state = pool.sample() if member.speaks_tenure else pool.everything()
            pool.out.exchanges.append(PushPullExchange(member.address, state))

    def _rejoin(self, now: float) -> None:
        """Asks for a push/pull with one address that should be a member and is not. So a pool that was cut in two becomes one again."""
        pool = self._pool
        self._rejoin_due = now + (0.75 + 0.5 * pool.random.random()) * pool.settings.rejoin_interval_s
        here = {member.address for member in pool.roster if member.is_here}
        missing = self.seeds.pick_missing(now, here)
        if missing is not None:
            pool.out.exchanges.append(PushPullExchange(missing, pool.everything(join=True)))

    def receive(self, now: float, source: Address, message: Message) -> Effects:
        """Handles one message of a datagram that came from `source`."""
        match message:
            case Ping():
                self._answer(now, source, message)
            case Ack():
                if not self._prober.ack(now, source, message):
                    self._relays.ack(message)
            case Alive():
                self._rules.alive(now, message)
            case Suspect():
                self._rules.suspect(now, message)
            case Dead():
                self._rules.dead(now, message)
            case IndirectPing():
                self._relays.ask(now, source, message)
            case PingNack():
                self._prober.nack(source, message)
            case User():
                self._serf.hear(message)
            case StreamRefusal():
                pass  # it has a meaning on streams only
        return self._done()

    def answer_to(self, now: float, ping: Ping) -> Ack | None:
        """Returns the answer to a ping of a datagram or a stream; None when the ping names another node."""
        if ping.node and ping.node != self.me.name:
            self.counters.misdirected += 1
            return None
        asker = self._pool.roster.get(ping.source_node)
        if asker is None or not asker.speaks_tenure:
            return Ack(ping.seq)
        if ping.health and asker.is_here:
            take_health_field(self._pool, asker, ping.health)
        own = self._pool.health.own
        health = b"" if own is None else encode_health_field(self.me.incarnation, own)
        return Ack(ping.seq, b"", health, max(0, round((now + self._prober.wall_offset) * 1_000_000)))

    def _answer(self, now: float, source: Address, ping: Ping) -> None:
        """Sends the answer to a ping of a datagram."""
        ack = self.answer_to(now, ping)
        if ack is not None:
            self._pool.send(ping.source or source, ack, self._pool.roster.get(ping.source_node))

    def stream_answered(self, now: float, seq: int) -> Effects:
        """Takes note that a `StreamPing` was answered."""
        self._prober.stream_answered(seq)
        return self._done()

    def send_failed(self, now: float, probe: int, why: str) -> Effects:
        """Takes note that our own machine refused to send a packet. `probe` is the number of the probe in it, or 0."""
        self.counters.send_errors += 1
        if probe:
            self._prober.send_failed(probe)
            self._pool.warn(Complaint.SEND_FAILED, self.me.name, why)
            self._prober.tick(now)
        return self._done()

    def state(self, *, join: bool = False) -> PushPull:
        """Returns everything that this node believes, itself first."""
        return self._pool.everything(join=join)

    def answer_state(self, request: PushPull) -> PushPull:
        """Returns the answer to a push/pull: everything, where the sender joins, only asks, or does not run Tenure; else a sample."""
        sender = self._pool.roster.get(request.nodes[0].name) if request.nodes else None
        if request.join or sender is None or not sender.speaks_tenure:
            return self._pool.everything()
        return self._pool.sample()

    def merge(self, now: float, state: PushPull) -> Effects:
        """Merges another node's beliefs into ours."""
        self._serf.clock.witness_state(state.user_state, self.me.name)
        self.counters.malformed += state.skipped
        self._rules.merge(now, state)
        return self._done()

    def set_tags(self, tags: dict[str, str]) -> Effects:
        """Replaces the user's tags, and tells everybody. Raises `ConfigurationError`, and then nothing changed."""
        before, self._user_tags = self._user_tags, check_user_tags(tags)
        try:
            self._write_tags()
        except ConfigurationError:
            self._user_tags = before
            raise
        self._rules.announce()
        return self._done()

    def set_health(self, health: HealthPiggyback) -> Effects:
        """Replaces our own health. Probes carry it at once; everybody hears of it when readiness or load changed."""
        self._pool.health.set_own(health)
        return self._done()

    def _tag_health(self, now: float) -> None:
        """Writes our health into our tags and tells everybody."""
        self._tag_due = now + self._pool.settings.slow_health_interval_s
        self._pool.health.tagged = self._pool.health.own
        self._write_tags()
        self._rules.announce()

    def _write_tags(self) -> None:
        """Writes the user's tags and ours into our own record."""
        me = self.me
        tags = all_tags(self._user_tags, me.start_id, self._pool.health.tagged)
        me.meta, me.tags = encode_tags(tags), tags

    def leave(self, now: float) -> Effects:
        """Begins to leave. The caller goes on with `tick` until `told_leaving`, then stops."""
        pool = self._pool
        if pool.leaving:
            return self._done()
        pool.leaving = True
        if all(member.speaks_tenure for member in pool.roster if member.is_here):
            self._say_dead(now)
        else:
            self._serf.say_leaving()
            self._leave_due = now + SERF_LEAVE_DELAY_S
        return self._done()

    def _say_dead(self, now: float) -> None:
        """Tells everybody that this node left."""
        self._rules.dead(now, Dead(self.me.incarnation, self.me.name, self.me.name))

    def drain(self) -> Effects:
        """Returns the effects of `answer_to`, which returns the answer itself."""
        return self._done()

    def forget_rumours(self) -> None:
        """Drops the rumours that wait. A simulation that begins with all members known to all calls it."""
        self._pool.queue.clear()

    def _done(self) -> Effects:
        """Hands over the effects of this call, and starts anew."""
        outcome = self._pool.out
        if outcome:
            self._pool.out = Effects()
        return outcome


def _next_beat(due: float, interval: float, now: float) -> float:
    """Returns the next time on the same grid. After a long pause that is one beat, not all those that were missed."""
    missed = int((now - due) / interval)
    return due + (missed + 1) * interval
