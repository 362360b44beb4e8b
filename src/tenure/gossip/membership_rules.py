"""The rules of belief: how alive, suspect and dead messages change a member, when this node refutes, and how two views of a pool are merged.

    believed   | alive, newer        | suspect, not older | dead, not older    | suspicion runs out
    -----------+---------------------+--------------------+--------------------+-------------------
    unknown    | alive: joined       | –                  | –                  |
    alive      | alive: updated      | suspect            | dead or left       |
    suspect    | alive: refuted      | confirmed          | dead or left       | dead: failed
    dead, left | alive: joined       | –                  | –                  |
    ourselves  | refute, if not ours | refute             | refute, or we left |

"Newer" means a higher incarnation. Only a node itself raises its own incarnation. A dead message that the node itself sent means that it left.
"""

from __future__ import annotations

import heapq
import itertools

from tenure.gossip.members import HEALTH, START, PoolMember, decode_tags, health_from_tag
from tenure.gossip.messages import MAX_INCARNATION, VERSIONS, Alive, Dead, MemberState, NodeState, PushPull, Suspect
from tenure.gossip.settings import Suspicion, confirmations_wanted, suspicion_min_s
from tenure.gossip.state import Complaint, HealthEvent, MemberChange, SwimState

MAX_OUTBID = 64
"""Starts at other addresses that a node outbids in its life. More of them are not its former lives."""


class MembershipRules:
    """Applies rumours to the members of one pool. It is the only writer of members."""

    def __init__(self, pool: SwimState) -> None:
        self._pool = pool
        # A heap of (deadline, tie, name). A deadline that moved has a newer entry, and `tick` skips the older one.
        self._suspicions: list[tuple[float, int, str]] = []
        self._ties = itertools.count()
        # The claims (name, host, port) that we have warned of.
        self._conflicts: set[tuple[str, str, int]] = set()
        # Starts of this node at other addresses that this start has outbid.
        self._outbid: set[str] = set()

    @property
    def next_due(self) -> float:
        """The time at which `tick` has something to do; infinity when nobody is suspected."""
        return self._suspicions[0][0] if self._suspicions else float("inf")

    def alive(self, now: float, rumour: Alive) -> None:
        """Applies an alive message."""
        pool = self._pool
        if not _versions_make_sense(rumour.versions):
            pool.counters.malformed += 1
            return
        if rumour.node == pool.me.name:
            self._alive_about_me(rumour)
            return
        member = pool.roster.get(rumour.node)
        if member is None:
            if self._is_full():
                return
            member = PoolMember(rumour.node, rumour.address, now)
            pool.roster.add(member)
        elif member.address != rumour.address:
            if not self._may_take_name(now, member, rumour):
                self._conflict(member, rumour)
                return
            # Where the old owner is gone, the new one wins with any incarnation: memberlist's nodes start again at 1.
        elif rumour.incarnation <= member.incarnation:
            return
        self._becomes_alive(now, member, rumour)

    def _is_full(self) -> bool:
        """Returns True when no further name is taken. The first refusal is told to people, because somebody may be inventing names."""
        pool = self._pool
        if len(pool.roster) < pool.settings.max_members:
            return False
        if not pool.counters.members_refused:
            pool.warn(Complaint.POOL_FULL, pool.me.name, f"{len(pool.roster)} members are known; new ones are refused")
        pool.counters.members_refused += 1
        return True

    def _becomes_alive(self, now: float, member: PoolMember, rumour: Alive) -> None:
        """Writes the newer alive message into the member, passes it on, and tells the change."""
        pool = self._pool
        before, meta_before, start_before = member.state, member.meta, member.start_id
        pool.broadcast(rumour)
        member.suspicion = None
        member.address = rumour.address
        member.incarnation = rumour.incarnation
        member.versions = rumour.versions or VERSIONS
        if before is not MemberState.ALIVE:
            member.state = MemberState.ALIVE
            member.changed_at = now
        if rumour.meta != meta_before:
            member.meta = rumour.meta
            member.tags = decode_tags(rumour.meta)
            member.start_id = member.tags.get(START, "")
        restarted = bool(start_before) and member.start_id != start_before
        if before is MemberState.SUSPECT and not restarted:
            pool.counters.false_alarms += 1
            pool.tell(MemberChange.REFUTED, member)
        elif before in (MemberState.DEAD, MemberState.LEFT):
            pool.counters.joins += 1
            if before is MemberState.DEAD and member.start_id and member.start_id == start_before:
                pool.counters.late_returns += 1
            pool.tell(MemberChange.JOINED, member)
        if restarted:
            pool.tell(MemberChange.RESTARTED, member, f"start {start_before} is over, this is {member.start_id}")
        elif before is MemberState.ALIVE and rumour.meta != meta_before:
            pool.tell(MemberChange.UPDATED, member, "tags")
        self._take_health(member, meta_before)

    def _take_health(self, member: PoolMember, meta_before: bytes) -> None:
        """Reads the health in the member's tags where the tags have changed."""
        tag = member.tags.get(HEALTH)
        if tag is None or member.meta == meta_before:
            return
        health = health_from_tag(tag)
        if health is None:
            self._pool.counters.health_refused += 1
        elif self._pool.health.offer(member.name, member.incarnation, health):
            self._pool.counters.health_received += 1
            self._pool.happened(HealthEvent(member.name, health))

    def _may_take_name(self, now: float, member: PoolMember, rumour: Alive) -> bool:
        """Returns True when another address may take this member's name: it left, it has been dead for long enough, or this is a later start of
        the same node. Our nodes name each start, and a later one has a higher incarnation, so nobody has to wait for the old one's death."""
        if member.state is MemberState.LEFT:
            return True
        if member.speaks_tenure and rumour.incarnation > member.incarnation:
            start = decode_tags(rumour.meta).get(START, "")
            if start and start != member.start_id:
                return True
        waited = now - member.changed_at
        return member.state is MemberState.DEAD and waited >= self._pool.settings.reclaim_after_s

    def _conflict(self, member: PoolMember, rumour: Alive) -> None:
        """Warns of two addresses that claim one name. Each claim is warned of once, because it comes back with each push/pull."""
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
        """Answers an alive message about this node, which some other node sent on."""
        me = self._pool.me
        is_ours = rumour.address == me.address and rumour.incarnation == me.incarnation and rumour.meta == me.meta
        if rumour.address != me.address and not self._is_former_life(rumour):
            self._conflict(me, rumour)
            return
        if rumour.incarnation < me.incarnation or is_ours or self._pool.leaving:
            return
        # The pool remembers a former life of ours, with a higher incarnation than this one: rise above it.
        self.refute(rumour.incarnation, "a former life of ours is remembered")

    def _is_former_life(self, rumour: Alive) -> bool:
        """Returns True for a start of this node at another address that we have not outbid yet. Each start is outbid once: should it be a rival
        that runs under our name, the two would otherwise outbid each other for ever."""
        start = decode_tags(rumour.meta).get(START, "")
        if not start or start == self._pool.me.start_id or start in self._outbid:
            return False
        if rumour.incarnation >= self._pool.me.incarnation:
            if len(self._outbid) >= MAX_OUTBID:
                return False
            self._outbid.add(start)
        return True

    def suspect(self, now: float, rumour: Suspect) -> None:
        """Applies a suspect message: begins a suspicion, confirms one, or refutes it where it is about this node."""
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
        if member.state is not MemberState.ALIVE:
            return
        pool.broadcast(rumour)
        pool.counters.suspicions += 1
        member.state = MemberState.SUSPECT
        member.incarnation = rumour.incarnation
        member.changed_at = now
        member.suspicion = self._begin_suspicion(now, rumour)
        self._watch(member, member.suspicion)
        pool.tell(MemberChange.SUSPECTED, member, f"by {rumour.origin}")

    def _begin_suspicion(self, now: float, rumour: Suspect) -> Suspicion:
        settings, roster = self._pool.settings, self._pool.roster
        min_s = suspicion_min_s(settings.suspicion_mult, len(roster), settings.probe_interval_s)
        # memberlist counts the dead too, and then waits six times as long for confirmations that nobody can give.
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

    def _watch(self, member: PoolMember, suspicion: Suspicion) -> None:
        """Has `tick` look at the suspicion when it runs out."""
        heapq.heappush(self._suspicions, (suspicion.deadline, next(self._ties), member.name))

    def tick(self, now: float) -> None:
        """Declares dead each member whose suspicion has run out."""
        while self._suspicions and self._suspicions[0][0] <= now:
            _, _, name = heapq.heappop(self._suspicions)
            member = self._pool.roster.get(name)
            suspicion = member.suspicion if member is not None else None
            if member is None or suspicion is None or suspicion.deadline > now:
                continue
            why = f"suspected for {now - suspicion.begun:.1f} s, confirmed by {suspicion.confirmations}"
            self.dead(now, Dead(suspicion.incarnation, name, self._pool.me.name), why)

    def delay(self, seconds: float) -> None:
        """Prolongs every suspicion by the time in which this node did not listen."""
        waiting = []
        for member in self._pool.roster:
            if member.suspicion is not None:
                member.suspicion.delay(seconds)
                waiting.append((member.suspicion.deadline, next(self._ties), member.name))
        heapq.heapify(waiting)
        self._suspicions = waiting

    def dead(self, now: float, rumour: Dead, why: str = "") -> None:
        """Applies a dead message: the member failed, or it left where the message is its own."""
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
            member.state = MemberState.LEFT
            pool.counters.leaves += 1
            pool.tell(MemberChange.LEFT, member)
        else:
            member.state = MemberState.DEAD
            pool.counters.failures += 1
            pool.tell(MemberChange.FAILED, member, why or f"says {rumour.origin}")

    def _dead_about_me(self, now: float, rumour: Dead) -> None:
        """Refutes a dead message about this node, unless this node leaves and sent the message itself."""
        pool = self._pool
        if rumour.incarnation < pool.me.incarnation:
            return
        if not pool.leaving:
            self.refute(rumour.incarnation, f"{rumour.origin} declared us dead")
        elif rumour.origin == pool.me.name and pool.me.state is not MemberState.LEFT:
            pool.me.state = MemberState.LEFT
            pool.me.changed_at = now
            pool.broadcast(rumour)

    def refute(self, accused: int, why: str) -> None:
        """Announces this node with an incarnation above the accusation's, and warns."""
        pool = self._pool
        if accused >= MAX_INCARNATION:
            pool.warn(Complaint.OUTBID, pool.me.name, f"{why}, at the highest incarnation there is")
            return
        pool.awareness.add(1)
        pool.counters.refutations += 1
        pool.warn(Complaint.ACCUSED, pool.me.name, why)
        self.announce(accused)

    def announce(self, above: int = 0) -> None:
        """Tells everybody that this node is alive, with its present tags and a new incarnation, which is higher than `above`."""
        me = self._pool.me
        me.incarnation = min(MAX_INCARNATION, max(me.incarnation, above) + 1)
        self._pool.broadcast(Alive(me.incarnation, me.name, me.address, me.meta, me.versions))

    def merge(self, now: float, state: PushPull) -> None:
        """Applies another node's beliefs. A death that it reports becomes a suspicion here, so that the accused can answer."""
        for line in state.nodes:
            self._merge_line(now, line)

    def _merge_line(self, now: float, line: NodeState) -> None:
        match line.state:
            case MemberState.ALIVE:
                self.alive(now, Alive(line.incarnation, line.name, line.address, line.meta, line.versions))
            case MemberState.LEFT:
                self.dead(now, Dead(line.incarnation, line.name, line.name))
            case MemberState.DEAD | MemberState.SUSPECT:
                self.suspect(now, Suspect(line.incarnation, line.name, self._pool.me.name))


def _versions_make_sense(versions: bytes) -> bool:
    """Returns True when versions are absent or give a range that is not empty. Zeros would poison a Serf pool if we passed them on."""
    if not versions:
        return True
    low, high, current = versions[:3]
    return 0 < low <= current <= high
