"""The fold is the same in every process: whoever starts from a snapshot, or looks in between, comes to the same results."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.engines.contracts import KEY_MEMORY_S, FailureCause
from tenure.engines.mailbox_keys import MailboxKeys
from tenure.engines.nats import commands as c
from tenure.engines.nats.ledger import DUPLICATE, Ledger
from tenure.errors import KeyRefusedError, ReceiptHandleExpiredError, StaleFenceError, TenureError, TermLostError

BOXES = ("a", "b")
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "send",
                "keyed",
                "across",
                "across",
                "delayed",
                "claim",
                "claim",
                "claim of old",
                "await",
                "await",
                "await of old",
                "confirm",
                "withdraw",
                "look",
                "end",
                "settle",
                "nack",
                "release",
                "extend",
                "bury",
                "revoke",
                "purge",
                "replay",
                "forget",
                "campaign",
                "renew",
                "put",
                "remove",
                "cover",
                "cover",
                "exchange",
                "exchange",
                "exchange and stand",
                "exchange and stand",
                "withdraw stand",
                "extend many",
                "withdraw key",
            ]
        ),
        st.sampled_from(BOXES),
        st.integers(0, 5),
        st.sampled_from([0.0, 0.5, 1.0, 2.0, -3.0]),
        st.sampled_from(["", "", "snapshot", "look"]),
    ),
    max_size=60,
)


def command(kind: str, box: str, number: int, name: str, held: list[tuple[str, str]]) -> c.AnyCommand:
    message, receipt = held[number % len(held)] if held else ("none", "none")
    made: dict[str, c.AnyCommand] = {
        "send": c.Send(name, box, [c.Item(b"1", reply_to="b"), c.Item(b"2")]),
        "keyed": c.Send(name, box, [c.Item(b"k", key="k", generation=number), c.Item(b"l", key="l")]),
        "across": c.SendAcross(
            name, [(box, [c.Item(b"1")]), ("a", [c.Item(b"2")]), ("b", [c.Item(b"3", key="k", generation=number)])]
        ),
        "delayed": c.Send(name, box, [c.Item(b"d", delay=float(number))]),
        "claim": c.ClaimApart(name, box, number + 1, 1.0, 2, number % 2 == 0),
        "await": c.AwaitApart(name, box, number + 1, 10.0, 2, number % 2 == 0, float(number)),
        "claim of old": c.Claim(name, box, number + 1, 1.0, 2, number % 2 == 0),
        "await of old": c.Await(name, box, number + 1, 10.0, 2, number % 2 == 0, float(number)),
        "confirm": c.Confirm(name, box, held[: number + 1] or [("x", "y")], 10.0),
        "withdraw": c.Withdraw(name, box, receipt),
        "look": c.Look(name, box),
        "end": c.End(name, box, held[: number + 1] or [("x", "y")]),
        "settle": c.End(name, box, [(message, receipt)], b"r"),
        "nack": c.Nack(name, box, message, receipt, number / 2, 2),
        "release": c.Release(name, box, held[: number + 1] or [("x", "y")]),
        "extend": c.Extend(name, box, message, receipt, float(number), b"check"),
        "bury": c.Bury(name, box, message, receipt, FailureCause.REJECTED, "no"),
        "revoke": c.Revoke(name, box, "l"),
        "purge": c.Purge(name, box),
        "replay": c.Replay(name, box, message),
        "forget": c.Forget(name, box),
        "campaign": c.Campaign(name, "e", f"c{number}", 2.0, number),
        "renew": c.Renew(name, "e", number, 2.0),
        "put": c.Put(name, "s", f"k{number}", f"blob{name}", 1, (number, 0), 1.0),
        "remove": c.Remove(name, "s", f"k{number}"),
        "cover": c.Cover(name, f"p{number % 2}.0", 1, [["a"], ["b"]] if number % 3 else [[box]]),
        "exchange": exchange(name, box, number, held[: number + 1], 0.0),
        "exchange and stand": exchange(name, box, number, held[:1], float(number + 1)),
        "withdraw stand": c.Withdraw(name, "", receipt),
        "extend many": c.ExtendMany(name, [(box, *one) for one in held[: number + 1]], float(number)),
        "withdraw key": c.WithdrawKey(name, box, "k", number),
    }
    return made[kind]


def exchange(name: str, box: str, number: int, held: list[tuple[str, str]], seconds: float) -> c.AnyCommand:
    settled = [(box, message, receipt, b"r" if number % 2 else None) for message, receipt in held]
    terms = (number % 2 == 0, number, 10.0, 2, number % 3 == 0, seconds)
    return c.ConsumerExchange(name, settled, f"p{number % 2}.0", 1, *terms)


def outcome(ledger: Ledger, asked: c.AnyCommand, seq: int, at: float) -> Any:
    try:
        return ledger.apply(asked, seq, at)
    except TenureError as error:
        return type(error), str(error)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_a_fold_that_went_over_snapshots_gives_the_same_answers(plan: list[tuple[str, str, int, float, str]]) -> None:
    straight, other = Ledger(), Ledger()
    for name in BOXES:  # in one order: a snapshot keeps it
        straight.box(name), other.box(name)
    held: list[tuple[str, str]] = []
    at = 1_000.0
    for seq, (kind, box, number, passed, aside) in enumerate(plan, 1):
        at += passed  # also backwards: another server leads, and its clock is behind
        asked = c.decode(c.encode(command(kind, box, number, f"p{seq % 3}.{seq}", held)))
        answers = [outcome(ledger, asked, seq, at) for ledger in (straight, other)]
        assert _plain(answers[0]) == _plain(answers[1])
        assert (straight.handed, straight.dropped) == (other.handed, other.dropped)
        for name in BOXES:  # nothing lies there while somebody waits for it
            assert not (straight.box(name).ready_count and straight.box(name).stands.keep(straight.now))
            covered = [
                stand for stand in straight.consumers.keep(straight.now) if covers(straight, stand.consumer, name)
            ]
            assert not (straight.box(name).ready_count and covered)
        if kind.startswith("claim"):
            held = [(delivery.id, asked.id) for delivery in answers[0]] or held
        elif kind.startswith("exchange") and answers[0] is not None:
            held = [(delivery.id, asked.id) for delivery in answers[0].deliveries] or held
        for one in straight.handed:
            held = [(delivery.id, one.receipt) for delivery in one.deliveries]
        if aside == "snapshot":
            other = Ledger.restored(other.keep())
        elif aside == "look":
            for name in BOXES:
                other.box(name).next_due()
                other.box(name).depth(at + 5.0)
    assert Ledger.restored(straight.keep()).keep() == Ledger.restored(other.keep()).keep()


def covers(ledger: Ledger, consumer: str, box: str) -> bool:
    cover = ledger.consumers.covers.get(consumer)
    return cover is not None and any(box in rank for rank in cover.ranks)


def _plain(answer: Any) -> Any:
    """Sends tell refusals as errors, which do not compare."""
    if isinstance(answer, list):
        return [tuple(map(str, one)) if isinstance(one, tuple) and len(one) == 2 else one for one in answer]
    return answer


def claimed(ledger: Ledger, seq: int, at: float, lease: float = 10.0) -> tuple[str, str]:
    (delivery,) = ledger.apply(c.Claim(f"c.{seq}", "a", 1, lease, None, False), seq, at)
    return delivery.id, f"c.{seq}"


def test_a_receipt_is_dead_at_the_moment_its_lease_ends_and_not_before() -> None:
    ledger = Ledger()
    ledger.apply(c.Send("s.1", "a", [c.Item(b"1")]), 1, 100.0)
    held = claimed(ledger, 2, 100.0)
    ledger.apply(c.Extend("e.1", "a", *held, 10.0, None), 3, 109.999)
    with pytest.raises(ReceiptHandleExpiredError):
        ledger.apply(c.End("x.1", "a", [held]), 4, 119.999)
    assert claimed(ledger, 5, 120.0)[0] == held[0]


def test_an_old_delivery_cannot_settle_a_newer_one() -> None:
    ledger = Ledger()
    ledger.apply(c.Send("s.1", "a", [c.Item(b"1", reply_to="b")]), 1, 100.0)
    old = claimed(ledger, 2, 100.0, lease=1.0)
    new = claimed(ledger, 3, 101.0)
    with pytest.raises(ReceiptHandleExpiredError):
        ledger.apply(c.End("x.1", "a", [old], b"late"), 4, 101.5)
    assert ledger.box("b").depth(101.5) == (0, 0, 0)
    ledger.apply(c.End("y.1", "a", [new], b"good"), 5, 102.0)
    assert ledger.box("b").depth(102.0) == (1, 0, 0)


def test_time_never_goes_back_when_another_server_leads() -> None:
    ledger = Ledger()
    ledger.apply(c.Campaign("a.1", "e", "one", 5.0, 0), 1, 100.0)
    assert ledger.apply(c.Campaign("b.1", "e", "two", 5.0, 0), 2, 90.0) is None
    assert ledger.now == 100.0
    with pytest.raises(TermLostError):
        ledger.apply(c.Renew("c.1", "e", 1, 5.0), 3, 105.0)
    assert ledger.apply(c.Campaign("d.1", "e", "two", 5.0, 7), 4, 105.0) == 8


def test_keys_and_fences_are_remembered_for_a_day_and_not_longer() -> None:
    ledger = Ledger()
    ledger.apply(c.Send("s.1", "a", [c.Item(b"1", key="k", generation=3)]), 1, 0.0)
    ledger.apply(c.End("e.1", "a", [claimed(ledger, 2, 0.0)]), 3, 1.0)
    ledger.apply(c.Put("p.1", "s", "key", "blob", 1, (5, 1), None), 4, 1.0)
    assert ledger.apply(c.Remove("r.1", "s", "key"), 5, 1.0) is True
    ((_, refused),) = ledger.apply(c.Send("t.1", "a", [c.Item(b"1", key="k", generation=3)]), 6, KEY_MEMORY_S)
    assert isinstance(refused, KeyRefusedError)
    with pytest.raises(StaleFenceError):
        ledger.apply(c.Put("q.1", "s", "key", "blob2", 1, (5, 0), None), 7, KEY_MEMORY_S)
    late = KEY_MEMORY_S + 1.0
    assert ledger.apply(c.Send("u.1", "a", [c.Item(b"1", key="k")]), 8, late)[0][1] is None
    ledger.apply(c.Put("v.1", "s", "key", "blob3", 1, (1, 0), None), 9, late)
    assert [value.blob for value in ledger.values.unnamed] == ["blob"]


def test_a_command_that_comes_again_is_dropped_also_over_a_snapshot_and_out_of_order() -> None:
    ledger = Ledger()
    send = {number: c.Send(f"p.{number}", "a", [c.Item(b"%d" % number)]) for number in range(1, 8)}
    for seq, number in enumerate((1, 3, 3, 2, 1, 2, 7), 1):
        first = ledger.apply(send[number], seq, 1.0) is not DUPLICATE
        assert first is (seq in (1, 2, 4, 7))
        ledger = Ledger.restored(ledger.keep())
    assert ledger.apply(send[5], 8, 1.0) is not DUPLICATE  # it was under way all the time
    assert [ledger.apply(send[number], seq, 1.0) is DUPLICATE for seq, number in enumerate((5, 4, 6, 4), 9)] == [
        True,
        False,
        False,
        True,
    ]
    ledger.apply(c.Send("q.1", "a", [c.Item(b"x")]), 13, 4_000.0)
    assert list(ledger.heard) == ["q"]  # who was silent for an hour is forgotten
    assert ledger.box("a").depth(4_000.0) == (8, 0, 0)


def test_traffic_under_long_leases_leaves_nothing_behind() -> None:
    ledger = Ledger()
    for seq in range(1, 3_000, 3):
        ledger.apply(c.Send(f"s.{seq}", "a", [c.Item(b"1")]), seq, float(seq))
        held = claimed(ledger, seq + 1, float(seq), lease=40_000.0)
        ledger.apply(c.Extend(f"x.{seq}", "a", *held, 41_000.0, None), seq + 1, float(seq))
        ledger.apply(c.End(f"e.{seq}", "a", [held]), seq + 2, float(seq))
    box = ledger.box("a")
    assert (len(box.records), len(box.ready)) == (0, 0)
    assert len(box.timers) < 200


def test_commands_that_share_a_message_are_folded_as_if_each_had_come_by_itself() -> None:
    ledger = Ledger()
    together = c.Several([c.Send("a.1", "a", [c.Item(b"1")]), c.Send("a.2", "a", [c.Item(b"2")])])
    found = c.decode(c.encode(together))
    assert isinstance(found, c.Several)
    sent = [ledger.apply(one, 1, 100.0, 0 if place else 50, place) for place, one in enumerate(found.commands)]
    assert len({message for ((message, _),) in sent}) == 2  # the place in the log names a message
    assert (ledger.seq, ledger.bytes_since, ledger.box("a").ready_count) == (1, 50, 2)
    assert ledger.apply(c.Send("a.2", "a", [c.Item(b"2")]), 2, 101.0) is DUPLICATE  # it was sent again by itself


def test_packed_keys_survive_a_snapshot_and_refuse_as_records_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MailboxKeys, "most_unpacked", 1)
    ledger, seq = Ledger(), 0
    for number in range(5):
        item = c.Item(b"1", key=f"k{number}", generation=number)
        ledger.apply(c.Send(f"s.{number + 1}", "a", [item]), seq + 1, float(number))
        held = claimed(ledger, seq + 2, float(number))
        ledger.apply(c.End(f"e.{number + 1}", "a", [held]), seq + 3, float(number))
        seq += 3
        ledger = Ledger.restored(ledger.keep())
    assert len(ledger.boxes["a"].keys.packed) == 4
    for number in range(5):
        item = c.Item(b"1", key=f"k{number}", generation=number)
        ((_, refused),) = ledger.apply(c.Send(f"t.{number + 1}", "a", [item]), seq + 1 + number, 10.0)
        assert isinstance(refused, KeyRefusedError)
    assert Ledger.restored(ledger.keep()).keep() == ledger.keep()


def test_mailboxes_that_nobody_uses_let_go_of_their_keys_when_the_log_is_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MailboxKeys, "most_unpacked", 0)
    ledger = Ledger()
    ledger.apply(c.Send("s.1", "a", [c.Item(b"1", key="k")]), 1, 0.0)
    ledger.apply(c.End("e.1", "a", [claimed(ledger, 2, 0.0)]), 3, 1.0)
    ledger.apply(c.Compacted("x.1", 3, 10), 4, KEY_MEMORY_S)
    assert len(ledger.boxes["a"].keys.packed) == 1
    ledger.apply(c.Compacted("x.2", 4, 10), 5, KEY_MEMORY_S + 1.0)
    assert len(ledger.boxes["a"].keys.packed) == 0


def test_a_snapshot_whose_packed_keys_are_damaged_is_refused() -> None:
    ledger = Ledger()
    ledger.box("a").keys.packed.put("k", 1, 0.0, 0.0)
    kept = msgspec.msgpack.decode(ledger.keep())
    mailbox = kept[3]["a"]
    mailbox[-1][0] = [b"too short"]
    with pytest.raises(msgspec.ValidationError, match="shelf of keys"):
        Ledger.restored(msgspec.msgpack.encode(kept))
