"""The rules of belief: what alive, suspect and dead change, who is refuted, and how two views of a pool are merged.

    believed   | alive, newer        | suspect, not older | dead, not older    | suspicion runs out
    -----------+---------------------+--------------------+--------------------+-------------------
    unknown    | alive: joined       | –                  | –                  |
    alive      | alive: updated      | suspect            | dead or left       |
    suspect    | alive: refuted      | confirmed          | dead or left       | dead: failed
    dead, left | alive: joined       | –                  | –                  |
    ourselves  | refute, if not ours | refute             | refute, or we left |

"Newer" is a higher incarnation; only a node itself raises its own. Dead from the node itself means that it left.
"""

from __future__ import annotations

import heapq
import itertools

from tenure.gossip.events import Complaint, HealthEvent, What
from tenure.gossip.members import Member
from tenure.gossip.messages import MAX_INCARNATION, VERSIONS, Alive, Dead, NodeState, PushPull, State, Suspect
from tenure.gossip.pool import Pool
from tenure.gossip.scaling import confirmations_wanted, suspicion_min_s
from tenure.gossip.suspicion import Suspicion
from tenure.gossip.tags import HEALTH, START, decode_tags, health_from_tag


class Rumours:
    """Applies what is heard to what is believed."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # (deadline, tie, name); a deadline that moved has a newer entry, and the old one is skipped.
        self._suspicions: list[tuple[float, int, str]] = []
        self._ties = itertools.count()
        self._conflicts: set[tuple[str, str, int]] = set()

    @property
    def next_due(self) -> float:
        return self._suspicions[0][0] if self._suspicions else float("inf")

    # -- alive ------------------------------------------------------------------------------------------------

    def alive(self, now: float, rumour: Alive) -> None:
        pool = self._pool
        if not _versions_make_sense(rumour.versions):
            pool.counters.malformed += 1
            return
        if rumour.node == pool.me.name:
            self._alive_about_me(rumour)
            return
        member = pool.roster.get(rumour.node)
        if member is None:
            member = Member(rumour.node, rumour.address, now)
            pool.roster.add(member)
        elif member.address != rumour.address:
            if not self._may_take_name(now, member):
                self._conflict(member, rumour)
                return
            # Taken whatever its incarnation: the original's start anew at 1.
        elif rumour.incarnation <= member.incarnation:
            return
        self._becomes_alive(now, member, rumour)

    def _becomes_alive(self, now: float, member: Member, rumour: Alive) -> None:
        pool = self._pool
        before, meta_before, start_before = member.state, member.meta, member.start_id
        pool.broadcast(rumour)
        member.suspicion = None
        member.address = rumour.address
        member.incarnation = rumour.incarnation
        member.versions = rumour.versions or VERSIONS
        if before is not State.ALIVE:
            member.state = State.ALIVE
            member.changed_at = now
        if rumour.meta != meta_before:
            member.meta = rumour.meta
            member.tags = decode_tags(rumour.meta)
            member.start_id = member.tags.get(START, "")
        restarted = bool(start_before) and member.start_id != start_before
        if before is State.SUSPECT and not restarted:
            pool.counters.false_alarms += 1
            pool.tell(What.REFUTED, member)
        elif before in (State.DEAD, State.LEFT):
            pool.counters.joins += 1
            if before is State.DEAD and member.start_id and member.start_id == start_before:
                pool.counters.late_returns += 1
            pool.tell(What.JOINED, member)
        if restarted:
            pool.tell(What.RESTARTED, member, f"start {start_before} is over, this is {member.start_id}")
        elif before is State.ALIVE and rumour.meta != meta_before:
            pool.tell(What.UPDATED, member, "tags")
        self._take_health(member, meta_before)

    def _take_health(self, member: Member, meta_before: bytes) -> None:
        tag = member.tags.get(HEALTH)
        if tag is None or member.meta == meta_before:
            return
        health = health_from_tag(tag)
        if health is None:
            self._pool.counters.health_refused += 1
        elif self._pool.health.offer(member.name, member.incarnation, health):
            self._pool.counters.health_received += 1
            self._pool.happened(HealthEvent(member.name, health))

    def _may_take_name(self, now: float, member: Member) -> bool:
        if member.state is State.LEFT:
            return True
        waited = now - member.changed_at
        return member.state is State.DEAD and waited >= self._pool.settings.reclaim_after_s

    def _conflict(self, member: Member, rumour: Alive) -> None:
        """Said once for each pair of addresses: the rumour comes back with each push/pull."""
        claim = (rumour.node, *rumour.address)
        if claim in self._conflicts:
            return
        if len(self._conflicts) >= 1000:
            self._conflicts.clear()
        self._conflicts.add(claim)
        ours, theirs = f"{member.address[0]}:{member.address[1]}", f"{rumour.address[0]}:{rumour.address[1]}"
        self._pool.warn(
            Complaint.NAME_CONFLICT, rumour.node, f"known at {ours} ({member.state.name.lower()}), claimed by {theirs}"
        )

    def _alive_about_me(self, rumour: Alive) -> None:
        me = self._pool.me
        if rumour.address != me.address:
            self._conflict(me, rumour)
            return
        is_ours = rumour.incarnation == me.incarnation and rumour.meta == me.meta
        if rumour.incarnation < me.incarnation or is_ours or self._pool.leaving:
            return
        # A former life of ours, at a higher incarnation than this one: outlive it.
        self.refute(rumour.incarnation, "a former life of ours is remembered")

    # -- suspect ----------------------------------------------------------------------------------------------

    def suspect(self, now: float, rumour: Suspect) -> None:
        pool = self._pool
        if rumour.node == pool.me.name:
            if rumour.incarnation >= pool.me.incarnation and not pool.leaving:
                self.refute(rumour.incarnation, f"{rumour.origin} suspected us")
            return
        member = pool.roster.get(rumour.node)
        if member is None or rumour.incarnation < member.incarnation:
            return
        if rumour.origin == pool.me.name:
            pool.counters.accusations += 1
        if member.suspicion is not None:
            if member.suspicion.confirm(rumour.origin):
                pool.broadcast(rumour)
                self._watch(member, member.suspicion)
            return
        if member.state is not State.ALIVE:
            return
        pool.broadcast(rumour)
        pool.counters.suspicions += 1
        member.state = State.SUSPECT
        member.incarnation = rumour.incarnation
        member.changed_at = now
        member.suspicion = self._begin_suspicion(now, rumour)
        self._watch(member, member.suspicion)
        pool.tell(What.SUSPECTED, member, f"by {rumour.origin}")

    def _begin_suspicion(self, now: float, rumour: Suspect) -> Suspicion:
        settings, roster = self._pool.settings, self._pool.roster
        min_s = suspicion_min_s(settings.suspicion_mult, len(roster), settings.probe_interval_s)
        # The original counts the dead too, and then waits six times as long for confirmations that nobody can give.
        wanted = confirmations_wanted(settings.suspicion_mult, len(roster.here()))
        if not settings.lifeguard.suspicion:
            wanted = 0
        return Suspicion(
            now=now,
            accuser=rumour.origin,
            incarnation=rumour.incarnation,
            wanted=wanted,
            min_s=min_s,
            max_s=min_s * settings.suspicion_max_mult,
        )

    def _watch(self, member: Member, suspicion: Suspicion) -> None:
        heapq.heappush(self._suspicions, (suspicion.deadline, next(self._ties), member.name))

    def tick(self, now: float) -> None:
        """Declare dead whose suspicion has run out."""
        while self._suspicions and self._suspicions[0][0] <= now:
            _, _, name = heapq.heappop(self._suspicions)
            member = self._pool.roster.get(name)
            suspicion = member.suspicion if member is not None else None
            if member is None or suspicion is None or suspicion.deadline > now:
                continue
            why = f"suspected for {now - suspicion.begun:.1f} s, confirmed by {suspicion.confirmations}"
            self.dead(now, Dead(suspicion.incarnation, name, self._pool.me.name), why)

    def delay(self, seconds: float) -> None:
        """We were not listening for so long: every suspicion gets that time back."""
        waiting = []
        for member in self._pool.roster:
            if member.suspicion is not None:
                member.suspicion.delay(seconds)
                waiting.append((member.suspicion.deadline, next(self._ties), member.name))
        heapq.heapify(waiting)
        self._suspicions = waiting

    # -- dead -------------------------------------------------------------------------------------------------

    def dead(self, now: float, rumour: Dead, why: str = "") -> None:
        pool = self._pool
        if rumour.node == pool.me.name:
            self._dead_about_me(now, rumour)
            return
        member = pool.roster.get(rumour.node)
        if member is None or rumour.incarnation < member.incarnation or not member.is_here:
            return
        member.suspicion = None
        pool.broadcast(rumour)
        member.incarnation = rumour.incarnation
        member.changed_at = now
        if rumour.node == rumour.origin:
            member.state = State.LEFT
            pool.counters.leaves += 1
            pool.tell(What.LEFT, member)
        else:
            member.state = State.DEAD
            pool.counters.failures += 1
            pool.tell(What.FAILED, member, why or f"says {rumour.origin}")

    def _dead_about_me(self, now: float, rumour: Dead) -> None:
        pool = self._pool
        if rumour.incarnation < pool.me.incarnation:
            return
        if not pool.leaving:
            self.refute(rumour.incarnation, f"{rumour.origin} declared us dead")
        elif rumour.origin == pool.me.name and pool.me.state is not State.LEFT:
            pool.me.state = State.LEFT
            pool.me.changed_at = now
            pool.broadcast(rumour)

    # -- ourselves --------------------------------------------------------------------------------------------

    def refute(self, accused: int, why: str) -> None:
        """Live on, at an incarnation above the accusation's."""
        pool = self._pool
        if accused >= MAX_INCARNATION:
            pool.warn(Complaint.OUTBID, pool.me.name, f"{why}, at the highest incarnation there is")
            return
        pool.awareness.add(1)
        pool.counters.refutations += 1
        pool.warn(Complaint.ACCUSED, pool.me.name, why)
        self.announce(accused)

    def announce(self, above: int = 0) -> None:
        """Tell everybody that we are alive, with what we are now."""
        me = self._pool.me
        me.incarnation = min(MAX_INCARNATION, max(me.incarnation, above) + 1)
        self._pool.broadcast(Alive(me.incarnation, me.name, me.address, me.meta, me.versions))

    # -- merging ----------------------------------------------------------------------------------------------

    def merge(self, now: float, state: PushPull) -> None:
        """What another node believes. A death that it tells of is a suspicion to us: the accused gets to answer."""
        for line in state.nodes:
            self._merge_line(now, line)

    def _merge_line(self, now: float, line: NodeState) -> None:
        match line.state:
            case State.ALIVE:
                self.alive(now, Alive(line.incarnation, line.name, line.address, line.meta, line.versions))
            case State.LEFT:
                self.dead(now, Dead(line.incarnation, line.name, line.name))
            case State.DEAD | State.SUSPECT:
                self.suspect(now, Suspect(line.incarnation, line.name, self._pool.me.name))


def _versions_make_sense(versions: bytes) -> bool:
    """Absent, or a protocol range that is not empty. Zeros there would poison a Serf pool if passed on."""
    if not versions:
        return True
    low, high, current = versions[:3]
    return 0 < low <= current <= high
