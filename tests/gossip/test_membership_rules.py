"""The table of beliefs, line by line, on one node that is told things."""

from __future__ import annotations

import pytest
from tests.gossip.one_node import ME, happened, node, passed_on, tell, there, warned, with_peers

from tenure.gossip.members import encode_tags
from tenure.gossip.messages import MAX_INCARNATION, Alive, Dead, MemberState, NodeState, PushPull, Suspect, User
from tenure.gossip.state import Complaint, MemberChange
from tenure.gossip.swim import Swim


def belief(swim: Swim, name: str) -> tuple[MemberState, int]:
    member = swim.member(name)
    return member.state, member.incarnation


def test_an_unknown_node_that_lives_joins_and_is_passed_on() -> None:
    swim = node()
    assert happened(tell(swim, Alive(10, "a", there(2), encode_tags({"role": "web"})))) == [MemberChange.JOINED]
    assert belief(swim, "a") == (MemberState.ALIVE, 10)
    assert swim.member("a").tags == {"role": "web"}
    assert passed_on(swim) == [Alive(10, "a", there(2), encode_tags({"role": "web"}))]


@pytest.mark.parametrize("accusation", [Suspect(10, "ghost", "a"), Dead(10, "ghost", "a")])
def test_accusations_of_the_unknown_are_dropped(accusation: object) -> None:
    swim = with_peers()
    assert not tell(swim, accusation).events
    assert swim.member("ghost") is None


def test_old_news_of_the_living_changes_nothing() -> None:
    swim = with_peers()
    for old in (Alive(10, "p2", there(2), b"x"), Alive(9, "p2", there(2)), Suspect(9, "p2", "p3"), Dead(9, "p2", "p3")):
        assert not tell(swim, old).events
    assert belief(swim, "p2") == (MemberState.ALIVE, 10)
    assert swim.queued == 0


def test_newer_tags_are_an_update() -> None:
    swim = with_peers()
    assert happened(tell(swim, Alive(11, "p2", there(2), encode_tags({"role": "db"})))) == [MemberChange.UPDATED]
    assert swim.member("p2").tags == {"role": "db"}


def test_a_suspect_may_refute_until_its_time_runs_out() -> None:
    swim = with_peers()
    assert happened(tell(swim, Suspect(10, "p2", "p3"), 1.0)) == [MemberChange.SUSPECTED]
    assert happened(tell(swim, Alive(10, "p2", there(2)), 2.0)) == []  # not newer than the accusation
    assert happened(tell(swim, Alive(11, "p2", there(2)), 2.0)) == [MemberChange.REFUTED]
    assert swim.counters.false_alarms == 1
    assert MemberChange.FAILED not in happened(swim.tick(500.0))
    assert belief(swim, "p2")[0] is not MemberState.DEAD


def test_confirmations_bring_the_end_nearer_and_are_passed_on() -> None:
    swim = with_peers()  # 6 nodes: 4 s at the shortest, 24 s at the longest
    tell(swim, Suspect(10, "p2", "p3"), 1.0)
    tell(swim, Suspect(10, "p2", "p3"), 1.1)
    assert swim.member("p2").suspicion.deadline == pytest.approx(25.0)
    swim.forget_rumours()
    tell(swim, Suspect(10, "p2", "p4"), 1.2)
    assert passed_on(swim) == [Suspect(10, "p2", "p4")]
    tell(swim, Suspect(10, "p2", "p5"), 1.3)
    assert swim.member("p2").suspicion.deadline == pytest.approx(5.0)
    assert MemberChange.FAILED not in happened(swim.tick(4.99))
    assert MemberChange.FAILED in happened(swim.tick(5.0))
    assert Dead(10, "p2", "me") in passed_on(swim)


def test_who_leaves_says_so_itself() -> None:
    swim = with_peers()
    assert happened(tell(swim, Dead(10, "p2", "p2"))) == [MemberChange.LEFT]
    assert happened(tell(swim, Dead(10, "p3", "p2"))) == [MemberChange.FAILED]
    assert [belief(swim, name)[0] for name in ("p2", "p3")] == [MemberState.LEFT, MemberState.DEAD]
    assert not tell(swim, Dead(11, "p2", "p4")).events  # dead already


def test_the_dead_come_back_with_a_higher_incarnation_only() -> None:
    swim = with_peers()
    tell(swim, Dead(10, "p2", "p3"))
    assert not tell(swim, Alive(10, "p2", there(2))).events
    assert not tell(swim, Suspect(12, "p2", "p3")).events
    assert happened(tell(swim, Alive(11, "p2", there(2)))) == [MemberChange.JOINED]


def test_a_new_start_under_the_same_name_is_told_apart() -> None:
    swim = node()
    tell(swim, Alive(10, "a", there(2), encode_tags({"start": "one"})))
    outcome = tell(swim, Alive(11, "a", there(2), encode_tags({"start": "two"})))
    assert happened(outcome) == [MemberChange.RESTARTED]
    tell(swim, Dead(11, "a", "b"))
    assert happened(tell(swim, Alive(12, "a", there(2), encode_tags({"start": "two"})))) == [MemberChange.JOINED]
    assert swim.counters.late_returns == 1  # declared dead, and it lived
    tell(swim, Dead(12, "a", "b"))
    again = tell(swim, Alive(13, "a", there(2), encode_tags({"start": "three"})))
    assert happened(again) == [MemberChange.JOINED, MemberChange.RESTARTED]
    assert swim.counters.late_returns == 1


@pytest.mark.parametrize(
    "accusation", [Suspect(51, "me", "p2"), Dead(51, "me", "p2"), Suspect(700, "me", "p2"), Alive(60, "me", ME, b"old")]
)
def test_we_refute_above_the_accusation_and_trust_ourselves_less(accusation: Suspect | Dead | Alive) -> None:
    swim = with_peers()
    assert swim.me.incarnation == 51
    outcome = tell(swim, accusation)
    assert warned(outcome) == [Complaint.ACCUSED]
    assert swim.me.incarnation == accusation.incarnation + 1
    assert passed_on(swim) == [Alive(accusation.incarnation + 1, "me", ME, swim.me.meta)]
    assert swim.awareness == 1
    assert swim.counters.refutations == 1


@pytest.mark.parametrize("stale", [Suspect(50, "me", "p2"), Dead(50, "me", "p2"), Alive(50, "me", ME)])
def test_stale_accusations_of_us_are_not_worth_an_answer(stale: object) -> None:
    swim = with_peers()
    assert not tell(swim, stale).events
    assert (swim.me.incarnation, swim.queued, swim.awareness) == (51, 0, 0)


def test_our_own_word_coming_back_is_nothing() -> None:
    swim = with_peers()
    assert not tell(swim, Alive(51, "me", ME, swim.me.meta)).events
    assert swim.me.incarnation == 51


def test_an_accusation_that_cannot_be_outbid_is_said_and_costs_nothing() -> None:
    swim = with_peers()
    assert warned(tell(swim, Suspect(MAX_INCARNATION, "me", "p2"))) == [Complaint.OUTBID]
    assert swim.me.incarnation == 51


def test_a_name_is_not_taken_from_a_living_node() -> None:
    swim = with_peers()
    thief = Alive(99, "p2", there(77))
    assert warned(tell(swim, thief)) == [Complaint.NAME_CONFLICT]
    assert not tell(swim, thief).events  # said once
    assert swim.member("p2").address == there(2)
    assert warned(tell(swim, Alive(99, "me", there(78)))) == [Complaint.NAME_CONFLICT]
    assert swim.me.incarnation == 51


def start(name: str) -> bytes:
    return encode_tags({"start": name})


@pytest.mark.parametrize("state", ["alive", "suspect", "dead"])
def test_a_later_start_of_a_node_at_another_port_is_announced_at_once(state: str) -> None:
    swim = with_peers()
    tell(swim, Alive(20, "w", ("10.0.0.9", 4001), start("first")))
    if state != "alive":
        tell(swim, (Suspect if state == "suspect" else Dead)(20, "w", "p2"))
    swim.forget_rumours()
    moved = Alive(21, "w", ("10.0.0.9", 4002), start("second"))
    assert MemberChange.RESTARTED in happened(tell(swim, moved, 1.0))
    assert (swim.member("w").address, swim.member("w").state) == (("10.0.0.9", 4002), MemberState.ALIVE)
    assert passed_on(swim) == [moved]
    # Neither an older start nor the same one at another address can take it back.
    for claim in (
        Alive(20, "w", ("10.0.0.9", 4001), start("first")),
        Alive(30, "w", ("10.0.0.9", 4003), start("second")),
    ):
        assert warned(tell(swim, claim, 2.0)) == [Complaint.NAME_CONFLICT]
    assert swim.member("w").address == ("10.0.0.9", 4002)


def test_a_node_that_came_back_elsewhere_rises_above_its_former_life_once() -> None:
    swim = with_peers()
    former = Alive(70, "me", ("10.0.0.1", 4001), start("life-0"))
    assert warned(tell(swim, former)) == [Complaint.ACCUSED]
    assert swim.me.incarnation == 71
    assert passed_on(swim)[0].incarnation == 71
    # A rival that runs under our name and outbids us in turn is a conflict, and not a race without end.
    assert warned(tell(swim, Alive(72, "me", ("10.0.0.1", 4001), start("life-0")))) == [Complaint.NAME_CONFLICT]
    assert swim.me.incarnation == 71


def test_a_name_may_be_taken_at_once_from_who_left_and_after_a_while_from_the_dead() -> None:
    swim = with_peers(reclaim_after_s=30.0)
    tell(swim, Dead(10, "p2", "p2"), 100.0)
    assert happened(tell(swim, Alive(1, "p2", there(77)), 100.1)) == [MemberChange.JOINED]
    assert swim.member("p2").address == there(77)
    tell(swim, Dead(10, "p3", "p4"), 100.0)
    assert warned(tell(swim, Alive(11, "p3", there(78)), 129.0)) == [Complaint.NAME_CONFLICT]
    assert happened(tell(swim, Alive(11, "p3", there(78)), 130.0)) == [MemberChange.JOINED]


@pytest.mark.parametrize("versions", [b"\0\0\0\0\0\0", b"\1\0\2\2\5\5", b"\5\1\2\2\5\5", b"\1\5\7\2\5\5"])
def test_versions_that_would_poison_a_serf_pool_are_neither_believed_nor_passed_on(versions: bytes) -> None:
    swim = node()
    assert not tell(swim, Alive(1, "a", there(2), b"", versions)).events
    assert swim.member("a") is None
    assert swim.queued == 0
    assert swim.counters.malformed == 1


def line(name: str, number: int, incarnation: int, state: MemberState) -> NodeState:
    return NodeState(name, there(number), incarnation, state)


def test_a_remote_death_merges_as_a_suspicion_so_that_the_accused_can_answer() -> None:
    swim = with_peers()
    state = PushPull(
        (
            line("p2", 2, 10, MemberState.DEAD),
            line("p3", 3, 10, MemberState.SUSPECT),
            line("p4", 4, 10, MemberState.LEFT),
        )
    )
    assert happened(swim.merge(5.0, state)) == [MemberChange.SUSPECTED, MemberChange.SUSPECTED, MemberChange.LEFT]
    assert [belief(swim, name)[0] for name in ("p2", "p3", "p4")] == [
        MemberState.SUSPECT,
        MemberState.SUSPECT,
        MemberState.LEFT,
    ]


def test_merging_brings_the_unknown_who_live_and_not_the_dead() -> None:
    swim = node()
    state = PushPull(
        (line("a", 2, 1, MemberState.ALIVE), line("b", 3, 1, MemberState.DEAD), line("c", 4, 1, MemberState.LEFT))
    )
    assert happened(swim.merge(0.0, state)) == [MemberChange.JOINED]
    assert [member.name for member in swim.members] == ["me", "a"]


def test_what_we_believe_of_ourselves_survives_a_merge() -> None:
    swim = with_peers()
    swim.merge(0.0, PushPull((NodeState("me", ME, 80, MemberState.DEAD),)))
    assert belief(swim, "me") == (MemberState.ALIVE, 81)


def test_the_dead_and_the_left_are_reaped_once_everybody_must_know() -> None:
    swim = with_peers(gossip_to_the_dead_s=30.0)
    tell(swim, Dead(10, "p2", "p3"), 0.0)
    tell(swim, Dead(10, "p3", "p3"), 0.0)
    seen: list[MemberChange] = []
    for period in range(40):
        seen += happened(swim.tick(float(period)))
        for name in ("p4", "p5", "p6"):  # whom we suspect, for they are silent, lives
            member = swim.member(name)
            tell(swim, Alive(member.incarnation + 1, name, member.address), float(period))
    assert seen.count(MemberChange.REAPED) == 2
    assert swim.member("p2") is None
    assert swim.member("p3") is None


def test_leaving_among_ours_is_one_word() -> None:
    swim = node()
    tell(swim, Alive(1, "a", there(2), encode_tags({"start": "x"})))
    swim.forget_rumours()
    swim.leave(1.0)
    assert passed_on(swim) == [Dead(51, "me", "me")]
    assert swim.me.state is MemberState.LEFT
    for accusation in (Dead(60, "me", "a"), Suspect(60, "me", "a")):
        assert not tell(swim, accusation).events  # we do leave: nothing to refute
    assert swim.me.incarnation == 51


def test_leaving_among_serfs_says_the_intent_first() -> None:
    swim = with_peers()
    swim.leave(1.0)
    (intent,) = passed_on(swim)
    assert isinstance(intent, User)
    assert intent.payload[0] == 0
    assert b"me" in intent.payload
    swim.tick(1.5)
    assert swim.me.state is MemberState.ALIVE
    swim.tick(2.0)
    assert swim.me.state is MemberState.LEFT
    assert not swim.told_leaving
    for period in range(3, 20):
        swim.tick(float(period))
    assert swim.told_leaving


def test_an_intent_of_ours_that_we_do_not_have_is_taken_back() -> None:
    swim = with_peers()
    tell(swim, User(b"\x00\x83\xa5LTime\x09\xa4Node\xa2me\xa5Prune\xc2"))
    (answer,) = passed_on(swim)
    assert answer.payload == b"\x01\x82\xa5LTime\x0b\xa4Node\xa2me"


def test_serfs_intents_are_passed_on_once() -> None:
    swim = with_peers()
    intent = User(b"\x00\x83\xa5LTime\x09\xa4Node\xa2p2\xa5Prune\xc2")
    tell(swim, intent)
    assert passed_on(swim) == [intent]
    swim.forget_rumours()
    tell(swim, intent)
    assert swim.queued == 0
    tell(swim, User(b"\x00\x83garbage"))
    assert swim.counters.malformed == 1


def test_a_push_pull_among_ours_compares_a_sample_and_a_join_everything() -> None:
    swim = node()
    for number in range(200):
        tell(swim, Alive(1, f"m{number}", ("10.1.0.1", number + 1), encode_tags({"start": "x"})))
    tell(swim, Alive(1, "serf", there(9)))
    ours, serf = PushPull((line("m3", 3, 1, MemberState.ALIVE),)), PushPull((line("serf", 9, 1, MemberState.ALIVE),))
    samples = [swim.answer_state(ours) for _ in range(40)]
    assert {len(sample.nodes) for sample in samples} == {64}
    assert all(sample.nodes[0].name == "me" for sample in samples)
    assert len({entry.name for sample in samples for entry in sample.nodes}) == 202  # in time, everybody
    for request in (serf, PushPull(()), PushPull(ours.nodes, join=True)):
        assert len(swim.answer_state(request).nodes) == 202


def test_no_confirmation_is_awaited_from_the_dead() -> None:
    swim = with_peers(5)
    for name in ("p4", "p5", "p6"):
        tell(swim, Dead(10, name, name), 1.0)
    tell(swim, Suspect(10, "p2", "p3"), 2.0)  # three live, the suspect among them: nobody is left to confirm
    assert swim.member("p2").suspicion.deadline == pytest.approx(6.0)
