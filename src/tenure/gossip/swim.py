"""The state machine of one node: told the time, given messages and ticks, it says what to send and what happened.

It does no I/O, asks no clock and draws from a generator that it is given, so a run can be replayed. `next_due` says when
it wants the next tick. The rules of belief are in `rumours`, the probe in `probing`, helping others in `relays`; here is
what ties them together: the rounds, leaving, and the seeds.
"""

from __future__ import annotations

from tenure.errors import ConfigurationError
from tenure.gossip.counters import Counters
from tenure.gossip.events import Complaint, What
from tenure.gossip.keyring import Keyring
from tenure.gossip.members import Member
from tenure.gossip.messages import (
    MAX_INCARNATION,
    MAX_NAME_BYTES,
    Ack,
    Address,
    Alive,
    Dead,
    IndirectPing,
    Message,
    Nack,
    Ping,
    PushPull,
    Refused,
    State,
    Suspect,
    User,
)
from tenure.gossip.outcome import Exchange, Outcome
from tenure.gossip.pool import Pool
from tenure.gossip.probing import Prober, take_ride
from tenure.gossip.relays import Relays
from tenure.gossip.riding import encode_ride
from tenure.gossip.rumours import Rumours
from tenure.gossip.scaling import push_pull_scale
from tenure.gossip.seeds import Seeds
from tenure.gossip.serf_layer import SerfLayer
from tenure.gossip.settings import GossipSettings
from tenure.gossip.skew import SkewEstimates
from tenure.gossip.tags import HEALTH, START, check_user_tags, encode_tags, health_tag
from tenure.health.piggyback import HealthPiggyback
from tenure.randomness import Random

SERF_LEAVE_DELAY_S = 1.0
"""Serf must hear the intent to leave before memberlist's "dead", or it shows the node as failed."""


SYNC_SAMPLE = 64
"""How many members a push/pull among ours compares; more would make each node's bytes grow with the pool."""


class Swim:
    """One node's view of its pool. Every method that can cause something returns an `Outcome` to perform."""

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
        self._pool = pool = Pool(
            name,
            address,
            settings,
            now=now,
            incarnation=min(incarnation, MAX_INCARNATION // 2),
            random=random,
            packet_overhead=packet_overhead,
            counters=self.counters,
        )
        self._rumours = Rumours(pool)
        self._prober = Prober(pool, self._rumours)
        self._relays = Relays(pool)
        self._serf = SerfLayer(pool, keyring)
        self.seeds = Seeds(random, settings.remember_failed_s)
        self._user_tags = check_user_tags(tags or {})
        self._start(start_id)
        # Nodes that start together should not tick together.
        self._probe_due = now + random.random() * settings.probe_interval_s
        self._gossip_due = now + random.random() * settings.gossip_interval_s
        self._sync_due = now + random.random() * settings.push_pull_interval_s
        self._rejoin_due = now + (0.5 + random.random()) * settings.rejoin_interval_s
        self._tag_due = now
        self._leave_due = float("inf")

    def _start(self, start_id: str) -> None:
        me = self._pool.me
        me.state, me.start_id = State.ALIVE, start_id
        self._pool.roster.add(me)
        self._write_tags()
        self._rumours.announce()

    # -- what is known ----------------------------------------------------------------------------------------

    @property
    def me(self) -> Member:
        """Our own record."""
        return self._pool.me

    @property
    def members(self) -> list[Member]:
        """All that are known, the dead too until they are reaped."""
        return list(self._pool.roster)

    def member(self, name: str) -> Member | None:
        return self._pool.roster.get(name)

    @property
    def others_here(self) -> bool:
        """Whether anybody else is alive, or only suspected not to be."""
        return any(member.is_here and member is not self.me for member in self._pool.roster)

    @property
    def awareness(self) -> int:
        """Lifeguard's score of ourselves: 0 is well."""
        return self._pool.awareness.score

    @property
    def skew(self) -> SkewEstimates:
        return self._pool.skew

    def health(self, node: str) -> HealthPiggyback | None:
        """The newest that is known of a node; our own for our own name."""
        return self._pool.health.own if node == self.me.name else self._pool.health.of(node)

    @property
    def queued(self) -> int:
        """How many rumours wait to be passed on."""
        return len(self._pool.queue)

    @property
    def told_leaving(self) -> bool:
        """Whether our leaving has been passed on as often as it should be."""
        return self.me.state is State.LEFT and not self._pool.queue.waits(self.me.name)

    @property
    def next_due(self) -> float:
        """When `tick` has something to do."""
        pool = self._pool
        due = min(self._rumours.next_due, self._prober.next_due, self._relays.next_due, self._leave_due)
        if not pool.leaving:
            due = min(due, self._probe_due, self._sync_due, self._rejoin_due)
            if pool.health.tag_is_stale:
                due = min(due, self._tag_due)
        return min(due, self._gossip_due) if pool.queue else due

    # -- time -------------------------------------------------------------------------------------------------

    def tell_wall(self, offset: float) -> None:
        """Unix time minus the time that we are told: told like the time, for it may be stepped."""
        self._prober.wall_offset = offset

    def tick(self, now: float) -> Outcome:
        """Do what is due."""
        pool, settings = self._pool, self._pool.settings
        self._relays.tick(now)
        self._prober.tick(now)
        self._rumours.tick(now)
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

    def lagged(self, now: float, seconds: float) -> Outcome:
        """Our own event loop was late by this much: nobody's answer is late on that account, and we trust us less."""
        pool = self._pool
        self.counters.lags += 1
        self.counters.lag_seconds += seconds
        pool.awareness.add(1)
        self._prober.delay(seconds)
        self._relays.delay(seconds)
        self._rumours.delay(seconds)
        pool.warn(Complaint.LAGGED, self.me.name, f"our event loop was {seconds:.2f} s late; score {self.awareness}")
        return self._done()

    def _probe_next(self, now: float) -> None:
        if self._prober.busy:
            # It goes on for longer than an interval while our score is bad; the next starts where it ends.
            self._probe_due = self._prober.next_due
            return
        me = self.me
        member = self._pool.roster.next_in_ring(
            lambda member: member.is_here and member is not me, lambda: self._reap(now)
        )
        if member is not None:
            self._prober.start(now, member)

    def _reap(self, now: float) -> list[Member]:
        pool = self._pool
        keep_s = pool.settings.gossip_to_the_dead_s
        gone = [m for m in pool.roster if not m.is_here and m is not pool.me and now - m.changed_at > keep_s]
        for member in gone:
            if member.state is State.DEAD:
                self.seeds.remember(now, member.address)
            pool.health.forget(member.name)
            pool.skew.forget(member.name)
            pool.tell(What.REAPED, member)
        return gone

    def _gossip(self, now: float) -> None:
        pool = self._pool
        if not pool.queue:
            return
        me, keep_s = self.me, pool.settings.gossip_to_the_dead_s

        def hears(member: Member) -> bool:
            return member is not me and (
                member.is_here or (member.state is State.DEAD and now - member.changed_at <= keep_s)
            )

        for member in pool.roster.pick(pool.settings.gossip_nodes, hears):
            parts = pool.rumours()
            if not parts:
                return
            pool.send_parts(member.address, parts, member)

    def _sync(self, now: float) -> None:
        pool = self._pool
        self._sync_due = now + pool.settings.push_pull_interval_s * push_pull_scale(len(pool.roster))
        me = self.me
        for member in pool.roster.pick(1, lambda member: member.state is State.ALIVE and member is not me):
            state = self._sample() if member.speaks_tenure else self.state()
            pool.out.exchanges.append(Exchange(member.address, state))

    def _rejoin(self, now: float) -> None:
        """Dial one address that should be a member and is not, so that a pool that was cut in two becomes one."""
        pool = self._pool
        self._rejoin_due = now + (0.75 + 0.5 * pool.random.random()) * pool.settings.rejoin_interval_s
        here = {member.address for member in pool.roster if member.is_here}
        missing = self.seeds.pick_missing(now, here)
        if missing is not None:
            pool.out.exchanges.append(Exchange(missing, self.state(join=True)))

    # -- messages ---------------------------------------------------------------------------------------------

    def receive(self, now: float, source: Address, message: Message) -> Outcome:
        """A message from a datagram."""
        match message:
            case Ping():
                self._answer(now, source, message)
            case Ack():
                if not self._prober.ack(now, source, message):
                    self._relays.ack(message)
            case Alive():
                self._rumours.alive(now, message)
            case Suspect():
                self._rumours.suspect(now, message)
            case Dead():
                self._rumours.dead(now, message)
            case IndirectPing():
                self._relays.ask(now, source, message)
            case Nack():
                self._prober.nack(source, message)
            case User():
                self._serf.hear(message)
            case Refused():
                pass  # only streams carry it
        return self._done()

    def answer_to(self, now: float, ping: Ping) -> Ack | None:
        """What a ping gets, on whatever way it came; None when it is meant for another node."""
        if ping.node and ping.node != self.me.name:
            self.counters.misdirected += 1
            return None
        asker = self._pool.roster.get(ping.source_node)
        if asker is None or not asker.speaks_tenure:
            return Ack(ping.seq)
        if ping.health and asker.is_here:
            take_ride(self._pool, asker, ping.health)
        own = self._pool.health.own
        health = b"" if own is None else encode_ride(self.me.incarnation, own)
        return Ack(ping.seq, b"", health, max(0, round((now + self._prober.wall_offset) * 1_000_000)))

    def _answer(self, now: float, source: Address, ping: Ping) -> None:
        ack = self.answer_to(now, ping)
        if ack is not None:
            self._pool.send(ping.source or source, ack, self._pool.roster.get(ping.source_node))

    def stream_answered(self, now: float, seq: int) -> Outcome:
        """A `StreamPing` was answered."""
        self._prober.stream_answered(seq)
        return self._done()

    def send_failed(self, now: float, probe: int, why: str) -> Outcome:
        """Our own machine refused to send a packet; `probe` is its number if it carried one."""
        self.counters.send_errors += 1
        if probe:
            self._prober.send_failed(probe)
            self._pool.warn(Complaint.SEND_FAILED, self.me.name, why)
            self._prober.tick(now)
        return self._done()

    # -- push/pull --------------------------------------------------------------------------------------------

    def state(self, *, join: bool = False) -> PushPull:
        """Everything that we believe, ourselves first."""
        me = self.me
        others = (member.as_state() for member in self._pool.roster if member is not me)
        return PushPull((me.as_state(), *others), join)

    def _sample(self) -> PushPull:
        """Some of what we believe. Over the rounds all of it is compared, and a round costs the same in every pool."""
        me, roster = self.me, self._pool.roster
        if len(roster) <= SYNC_SAMPLE:
            return self.state()
        others = roster.pick(SYNC_SAMPLE - 1, lambda member: member is not me)
        return PushPull((me.as_state(), *(member.as_state() for member in others)))

    def answer_state(self, request: PushPull) -> PushPull:
        """What a push/pull gets: everything, if its sender joins, only asks, or is none of ours."""
        sender = self._pool.roster.get(request.nodes[0].name) if request.nodes else None
        if request.join or sender is None or not sender.speaks_tenure:
            return self.state()
        return self._sample()

    def merge(self, now: float, state: PushPull) -> Outcome:
        """What another node believes."""
        self._serf.clock.witness_state(state.user_state, self.me.name)
        self.counters.malformed += state.skipped
        self._rumours.merge(now, state)
        return self._done()

    # -- ourselves --------------------------------------------------------------------------------------------

    def set_tags(self, tags: dict[str, str]) -> Outcome:
        """Replace the user's tags; everybody hears of it."""
        before, self._user_tags = self._user_tags, check_user_tags(tags)
        try:
            self._write_tags()
        except ConfigurationError:
            self._user_tags = before
            raise
        self._rumours.announce()
        return self._done()

    def set_health(self, health: HealthPiggyback) -> Outcome:
        """Ours from now on: probes carry it at once, everybody hears when it is another kind of health."""
        self._pool.health.set_own(health)
        return self._done()

    def _tag_health(self, now: float) -> None:
        self._tag_due = now + self._pool.settings.slow_health_interval_s
        self._pool.health.tagged = self._pool.health.own
        self._write_tags()
        self._rumours.announce()

    def _write_tags(self) -> None:
        me, tagged = self.me, self._pool.health.tagged
        tags = {**self._user_tags, START: me.start_id}
        if tagged is not None:
            tags[HEALTH] = health_tag(tagged)
        me.meta, me.tags = encode_tags(tags), tags

    def leave(self, now: float) -> Outcome:
        """Say that we go. Tick until `told_leaving`, then stop."""
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
        self._rumours.dead(now, Dead(self.me.incarnation, self.me.name, self.me.name))

    def drain(self) -> Outcome:
        """What is to be performed after `answer_to`."""
        return self._done()

    def forget_rumours(self) -> None:
        """Drop what waits to be passed on: for a simulation that begins with everybody known to everybody."""
        self._pool.queue.clear()

    def _done(self) -> Outcome:
        outcome = self._pool.out
        if outcome:
            self._pool.out = Outcome()
        return outcome


def _next_beat(due: float, interval: float, now: float) -> float:
    """The next time on the same grid; after a long pause one beat, not all that were missed."""
    missed = int((now - due) / interval)
    return due + (missed + 1) * interval
