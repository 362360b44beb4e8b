"""One node's probes, answered or not, message by message."""

from __future__ import annotations

import pytest
from tests.gossip.one_node import ME, happened, health, node, tell, there, warned, with_peers

from tenure.gossip.members import encode_health_field, encode_tags
from tenure.gossip.messages import Ack, Address, Alive, IndirectPing, Message, Ping, PingNack, Suspect
from tenure.gossip.settings import Lifeguard
from tenure.gossip.state import Complaint, Effects, HealthEvent, MemberChange
from tenure.gossip.swim import Swim
from tenure.gossip.wire import decode


def sent(outcome: Effects, kind: type) -> list[tuple[Address, Message]]:
    found = [(packet.to, decode(part)) for packet in outcome.packets for part in packet.parts]
    return [(to, message) for to, message in found if isinstance(message, kind)]


def first_ping(swim: Swim) -> tuple[float, Address, Ping]:
    """Tick until the first probe goes out."""
    now = 0.0
    while True:
        now = max(now, swim.next_due)
        pings = sent(swim.tick(now), Ping)
        if pings:
            return now, *pings[0]


def test_a_ping_names_its_target_and_where_to_answer() -> None:
    swim = with_peers()
    _, to, ping = first_ping(swim)
    assert to == swim.member(ping.node).address
    assert (ping.source, ping.source_node) == (ME, "me")


def test_an_ack_ends_the_probe_and_another_number_does_not() -> None:
    swim = with_peers()
    now, to, ping = first_ping(swim)
    swim.receive(now, to, Ack(ping.seq))
    assert swim.tick(now + 0.9).packets == []
    other = with_peers()
    now, to, ping = first_ping(other)
    other.receive(now, to, Ack(ping.seq + 1))
    assert sent(other.tick(now + 0.5), IndirectPing)


def test_silence_brings_helpers_and_a_stream_at_once_and_then_a_suspicion() -> None:
    swim = with_peers()
    now, to, ping = first_ping(swim)
    outcome = swim.tick(now + 0.5)
    asks = sent(outcome, IndirectPing)
    assert len(asks) == 3
    assert all(ask.target == to and ask.nack and ask.seq == ping.seq for _, ask in asks)
    assert to not in [helper for helper, _ in asks]
    assert [(stream.to, stream.ping.seq, stream.until) for stream in outcome.stream_pings] == [(to, ping.seq, now + 1)]
    for helper, _ in asks:
        swim.receive(now + 0.9, helper, PingNack(ping.seq))
    outcome = swim.tick(now + 1.0)
    assert happened(outcome) == [MemberChange.SUSPECTED]
    assert swim.awareness == 0  # the helpers answered: the fault is not ours


@pytest.mark.parametrize(("nacks", "score"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_helpers_that_are_silent_too_speak_against_us(nacks: int, score: int) -> None:
    swim = with_peers()
    now, _, ping = first_ping(swim)
    asks = sent(swim.tick(now + 0.5), IndirectPing)
    for helper, _ in asks[:nacks]:
        swim.receive(now + 0.9, helper, PingNack(ping.seq))
        swim.receive(now + 0.9, helper, PingNack(ping.seq))  # twice from one is one
    swim.tick(now + 1.0)
    assert swim.awareness == score


def test_without_helpers_a_failure_costs_one_point_and_a_success_gives_one_back() -> None:
    swim = with_peers(1)
    now, _, _ = first_ping(swim)
    swim.tick(now + 0.5)
    outcome = swim.tick(now + 1.0)
    assert swim.awareness == 1
    ((to, ping),) = sent(outcome, Ping)  # the next probe starts where the last one ended
    swim.receive(now + 1.1, to, Ack(ping.seq))
    assert swim.awareness == 0


def test_a_bad_score_makes_the_next_probe_more_patient() -> None:
    swim = with_peers()
    for _ in range(2):
        tell(swim, Suspect(swim.me.incarnation, "me", "p2"))
    assert swim.awareness == 2
    now, _, _ = first_ping(swim)
    swim.tick(now + 0.5)
    assert happened(swim.tick(now + 2.9)) == []
    assert happened(swim.tick(now + 3.0)) == [MemberChange.SUSPECTED]


def test_an_answer_through_a_helper_counts() -> None:
    swim = with_peers()
    now, _, ping = first_ping(swim)
    ((helper, _), *_) = sent(swim.tick(now + 0.5), IndirectPing)
    swim.receive(now + 0.8, helper, Ack(ping.seq))
    assert happened(swim.tick(now + 1.0)) == []
    assert swim.counters.probes_failed == 0


def test_a_stream_that_answers_saves_the_node_and_blames_udp_after_a_while() -> None:
    swim = with_peers(1)
    now, to, ping = first_ping(swim)
    complaints = []
    for _ in range(4):
        swim.tick(now + 0.5)
        complaints += warned(swim.stream_answered(now + 0.6, ping.seq))
        now += 1.0
        ((to, ping),) = sent(swim.tick(now), Ping)
    assert complaints == [Complaint.UDP_BLOCKED]
    assert swim.counters.suspicions == 0
    swim.receive(now, to, Ack(ping.seq))
    assert swim.member("p2").udp_silent == 0


def test_a_suspect_hears_of_it_with_the_ping() -> None:
    for buddy in (True, False):
        swim = with_peers(1, lifeguard=Lifeguard(buddy=buddy))
        tell(swim, Suspect(10, "p2", "p9"))
        swim.forget_rumours()
        while not (outcome := swim.tick(swim.next_due)).packets:
            pass
        told = sent(outcome, Suspect)
        assert told == ([(there(2), Suspect(10, "p2", "me"))] if buddy else [])


def test_our_own_machine_refusing_to_send_counts_as_no_answer_at_once() -> None:
    swim = with_peers()
    now, _, ping = first_ping(swim)
    outcome = swim.send_failed(now, ping.seq, "network is unreachable")
    assert len(sent(outcome, IndirectPing)) == 3
    assert warned(outcome) == [Complaint.SEND_FAILED]
    swim.send_failed(now, 0, "a rumour could not be sent either")
    assert swim.counters.send_errors == 2


def test_a_lag_of_ours_is_not_held_against_others() -> None:
    swim = with_peers()
    now, _, ping = first_ping(swim)
    tell(swim, Suspect(10, "p3", "p4"), now)
    tell(swim, Suspect(10, "p3", "p5"), now)
    tell(swim, Suspect(10, "p3", "p6"), now)
    end = swim.member("p3").suspicion.deadline
    outcome = swim.lagged(now + 10.0, 10.0)
    assert warned(outcome) == [Complaint.LAGGED]
    assert swim.awareness == 1
    outcome = swim.tick(now + 10.0)
    assert happened(outcome) == []
    assert swim.member("p3").suspicion.deadline == end + 10.0
    swim.receive(now + 10.1, swim.member(ping.node).address, Ack(ping.seq))  # it had waited unread
    assert swim.counters.probes_failed == 0


def test_helping_another_pings_for_it_and_passes_the_answer_on() -> None:
    swim = with_peers()
    ask = IndirectPing(77, there(3), "p3", True, there(2), "p2")
    ((to, ping),) = sent(tell(swim, ask, 5.0), Ping)
    assert (to, ping.node, ping.source) == (there(3), "p3", ME)
    outcome = swim.receive(5.1, there(3), Ack(ping.seq))
    assert sent(outcome, Ack) == [(there(2), Ack(77))]
    assert sent(swim.receive(5.2, there(3), Ack(ping.seq)), Ack) == []  # once


@pytest.mark.parametrize("wants_nack", [True, False])
def test_helping_in_vain_says_so_in_good_time_if_asked_to(wants_nack: bool) -> None:
    swim = with_peers()
    ((_, ping),) = sent(tell(swim, IndirectPing(77, there(3), "p3", wants_nack, there(2), "p2"), 5.0), Ping)
    assert sent(swim.tick(5.39), PingNack) == []
    assert sent(swim.tick(5.41), PingNack) == ([(there(2), PingNack(77))] if wants_nack else [])
    late = swim.receive(5.6, there(3), Ack(ping.seq))
    assert sent(late, Ack) == [(there(2), Ack(77))]  # late is better than never
    assert sent(swim.receive(5.7, there(3), Ack(ping.seq)), Ack) == []  # and then it is forgotten


def test_a_flood_of_requests_for_help_is_bounded() -> None:
    swim = with_peers()
    for number in range(1100):
        tell(swim, IndirectPing(number, there(3), "p3", True, there(2), "p2"), 5.0)
    assert swim.counters.relays_refused == 1100 - 1024
    swim.tick(7.0)
    assert sent(tell(swim, IndirectPing(1, there(3), "p3", True, there(2), "p2"), 7.0), Ping)
    assert swim.counters.relays_refused == 1100 - 1024


def test_a_ping_for_another_node_at_our_address_is_not_answered() -> None:
    swim = with_peers()
    assert not tell(swim, Ping(5, "somebody-else", there(2), "p2")).packets
    assert swim.counters.misdirected == 1


@pytest.mark.parametrize("source", [None, ("10.0.0.55", 9)])
def test_the_answer_goes_where_the_ping_says_or_where_it_came_from(source: Address | None) -> None:
    swim = node()
    outcome = swim.receive(0.0, there(99), Ping(5, "me", source))
    assert sent(outcome, Ack) == [(source or there(99), Ack(5))]


def test_health_and_time_ride_only_to_nodes_of_ours() -> None:
    swim = node()
    swim.tell_wall(1_700_000_000.0)
    swim.set_health(health())
    tell(swim, Alive(1, "serf", there(2)))
    tell(swim, Alive(1, "ours", there(3), encode_tags({"start": "x"})))
    ((_, to_serf),) = sent(tell(swim, Ping(5, "me", there(2), "serf"), 3.0), Ack)
    ((_, to_ours),) = sent(tell(swim, Ping(5, "me", there(3), "ours"), 3.0), Ack)
    assert to_serf == Ack(5)
    assert to_ours.health == encode_health_field(51, health(sequence=1))
    assert to_ours.wall_us == 1_700_000_003_000_000


def test_health_on_a_ping_and_on_an_ack_reaches_the_listener_once() -> None:
    swim = node()
    tell(swim, Alive(7, "ours", there(3), encode_tags({"start": "x"})))
    ride = encode_health_field(7, health(node_id="ours", sequence=3))
    outcome = tell(swim, Ping(5, "me", there(3), "ours", ride))
    assert [event for event in outcome.events if isinstance(event, HealthEvent)] == [
        HealthEvent("ours", health(node_id="ours", sequence=3))
    ]
    now, to, ping = first_ping(swim)
    outcome = swim.receive(now, to, Ack(ping.seq, b"", ride))
    assert not outcome.events
    assert swim.health("ours").capacity == 8
    tell(swim, Ping(6, "me", there(3), "ours", b"\xff\xff"))
    assert swim.counters.health_refused == 1


def test_an_ack_tells_how_far_the_other_clock_is_off() -> None:
    swim = node()
    swim.tell_wall(1000.0)
    tell(swim, Alive(7, "ours", there(3), encode_tags({"start": "x"})))
    now, to, ping = first_ping(swim)
    theirs = now + 0.05 + 1000.0 + 30.0
    swim.receive(now + 0.1, to, Ack(ping.seq, wall_us=round(theirs * 1_000_000)))
    assert swim.skew.of("ours").offset_s == pytest.approx(30.0, abs=0.001)
    assert swim.skew.ours() == pytest.approx(-30.0, abs=0.001)


def test_only_another_kind_of_health_becomes_a_tag_and_not_too_often() -> None:
    swim = with_peers(slow_health_interval_s=10.0)
    swim.set_health(health())
    swim.tick(0.0)
    first = swim.me.incarnation
    assert "health" in swim.me.tags
    swim.set_health(health(accepting_work=False))
    swim.tick(5.0)
    assert swim.me.incarnation == first
    swim.tick(10.0)
    assert swim.me.incarnation == first + 1
    swim.set_health(health(accepting_work=False, throughput=9))
    swim.tick(30.0)
    assert swim.me.incarnation == first + 1


def test_slow_health_in_tags_reaches_the_listener_too() -> None:
    speaker, listener = with_peers(), node()
    speaker.set_health(health(node_id="me"))
    speaker.tick(0.0)
    me = speaker.me
    outcome = tell(listener, Alive(me.incarnation, "other", there(5), me.meta))
    assert [event.node for event in outcome.events if isinstance(event, HealthEvent)] == ["other"]
    assert listener.health("other").capacity == 8
