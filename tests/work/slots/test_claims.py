"""The mailboxes of a worker, in their order, and the work that it leaves to others."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from tests.memory import kept_bytes

from tenure.jobs.mailbox_names import mailbox_for, work_mailbox
from tenure.work.delivery import WorkItem
from tenure.work.slots.claims import MOST_PAUSE_S, PATIENCE_S, STRANGER_PATIENCE_S, ClaimFilter, ServedMailboxes

KINDS = [("encode", "1"), ("encode", "2"), ("mail", "1")]


def served(*lanes: str, managed: bool = True) -> ServedMailboxes:
    mailboxes = ServedMailboxes(lanes, managed=managed)
    mailboxes.serve(KINDS)
    return mailboxes


def test_a_worker_covers_what_it_serves_by_priority_and_what_earlier_releases_sent() -> None:
    mailboxes = served("a.p9", "b.p9", "a.p0")
    high, low = mailboxes.ranks
    of_a = [work_mailbox("a", 9, name, version) for name, version in sorted([*KINDS, ("encode", ""), ("mail", "")])]
    assert high[:6] == [*of_a, "a.p9"]
    assert len(high) == 12
    assert low[-1] == "a.p0"
    assert {mailboxes.lane_of(mailbox) for mailbox in low} == {"a.p0"}
    assert mailboxes.several_ranks


def test_without_a_leader_each_mailbox_is_served_as_it_is_called() -> None:
    mailboxes = served("work", "other.p1", managed=False)
    kinds = ["encode/", "encode/1", "encode/2", "mail/", "mail/1"]
    assert mailboxes.ranks == [[*(f"{lane}/{kind}" for kind in kinds), lane] for lane in ("work", "other.p1")]
    assert mailbox_for("work", "encode", "2") == "work/encode/2"
    odd = mailbox_for("work", "a name/with.p0")
    assert (odd.startswith("work/."), odd == mailbox_for("work", "a name", "with.p0")) == (True, False)
    assert served("my.pool").ranks == [["my.pool"]]


def test_a_version_is_known_by_its_name_or_as_any() -> None:
    mailboxes = served("a.p0")
    assert mailboxes.knows("encode", "2")
    assert mailboxes.knows("encode", None)
    assert not mailboxes.knows("encode", "3")
    assert not mailboxes.knows("nobody", None)
    assert not mailboxes.serve(reversed(KINDS))


def test_a_mailbox_whose_first_item_was_declined_is_left_alone_for_a_while_and_the_others_are_not() -> None:
    mailboxes = served("work", "other", managed=False)
    mailboxes.pause("work", 5.0)
    assert ([rank[-1] for rank in mailboxes.ranks], mailboxes.resumes_at) == (["work/mail/1", "other"], 5.0)
    assert not mailboxes.resume(4.9)
    assert mailboxes.resume(5.0)
    assert [rank[-1] for rank in mailboxes.ranks] == ["work", "other"]
    assert mailboxes.resumes_at == math.inf


def item(*excluded: str, attempt: int = 2) -> WorkItem:
    return WorkItem(workflow="w", job_id="j", workflow_id="w", attempt=attempt, excluded=excluded)


def test_a_name_that_no_worker_can_have_is_not_left_to_others() -> None:
    claim_filter = ClaimFilter("w", knows=lambda *named: False)
    assert claim_filter.declines(WorkItem(workflow="nobody"), 3, 0.0)
    assert not claim_filter.declines(WorkItem(workflow="w" * 9_000), 3, 0.0)


def test_a_worker_leaves_work_that_excludes_it_to_others() -> None:
    claim_filter = ClaimFilter("w-1")
    assert claim_filter.declines(item("w-1", "w-3"), peers=1, now=0)
    assert not claim_filter.declines(item("w-3"), peers=1, now=0)
    assert not claim_filter.declines(item(), peers=1, now=0)


def test_a_worker_that_is_alone_takes_it() -> None:
    assert not ClaimFilter("w-1").declines(item("w-1"), peers=0, now=0)


def test_work_of_a_version_that_is_not_here_is_left_to_those_who_have_it() -> None:
    def knows(workflow: str, version: str | None) -> bool:
        return (workflow, version) == ("encode", "2")

    old = WorkItem(workflow="encode", version="1", job_id="j", workflow_id="w", attempt=1)
    new = WorkItem(workflow="encode", version="2", job_id="k", workflow_id="w", attempt=1)
    claim_filter = ClaimFilter("w-1", knows=knows, unknown_patience_s=300)
    assert claim_filter.declines(old, peers=1, now=0)
    assert not claim_filter.declines(new, peers=1, now=0)
    assert claim_filter.declines(old, peers=1, now=299)
    # Then it is a clear failure, and nobody waits for ever; alone, it is one at once.
    assert not claim_filter.declines(old, peers=1, now=300)
    assert not claim_filter.declines(old, peers=0, now=1)


def test_a_worker_that_is_alone_fails_nothing_that_a_leader_sent_and_it_does_not_have() -> None:
    """The worker that has it may be about to start. The leader takes it back if not."""
    claim_filter = ClaimFilter("w-1", knows=lambda workflow, version: workflow == "known")
    other = WorkItem(workflow="other", job_id="j", workflow_id="w", attempt=1, managed=True)
    assert claim_filter.declines(other, peers=0, now=0)
    assert claim_filter.declines(other, peers=None, now=STRANGER_PATIENCE_S)
    assert not claim_filter.declines(WorkItem(workflow="known", managed=True, excluded=("w-1",)), peers=0, now=0)
    # Without managers nobody takes it back.
    assert not claim_filter.declines(WorkItem(workflow="other"), peers=0, now=0)


def test_a_worker_that_has_just_started_waits_to_hear_whether_there_are_others() -> None:
    claim_filter = ClaimFilter("w-1", knows=lambda workflow, version: False)
    assert claim_filter.declines(item(), peers=None, now=0)
    assert not claim_filter.declines(item(), peers=0, now=1)
    assert not claim_filter.declines(item(), peers=None, now=STRANGER_PATIENCE_S)
    # What it knows it takes: an exclude list counts only where others are known.
    assert not ClaimFilter("w-1").declines(item("w-1"), peers=None, now=0)


def test_nobody_declines_the_same_attempt_for_ever() -> None:
    claim_filter = ClaimFilter("w-1", patience_s=30)
    assert claim_filter.declines(item("w-1"), 5, 100.0)
    assert claim_filter.declines(item("w-1"), 5, 129.9)
    assert not claim_filter.declines(item("w-1"), 5, 130.0)
    assert claim_filter.declines(item("w-1", attempt=3), 5, 130.0)  # another attempt is another matter


def test_what_is_given_back_again_and_again_is_left_alone_for_longer() -> None:
    claim_filter = ClaimFilter("w-1")
    pauses = []
    for n in range(6):
        assert claim_filter.declines(item("w-1"), 5, n * PATIENCE_S / 6)
        pauses.append(claim_filter.pause_s)
    assert pauses == sorted(pauses)
    assert pauses[-1] == MOST_PAUSE_S
    assert not claim_filter.declines(item(), 5, 10)
    assert claim_filter.pause_s < pauses[0]


@pytest.mark.parametrize("declined_before", [0, 20])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.999])
def test_an_idle_worker_that_is_excluded_looks_again_when_its_patience_ends(
    chance: float, declined_before: int
) -> None:
    """The pause after a decline grows: without a bound the work waited for up to 5 s, and 2 s are promised."""
    claim_filter, now = ClaimFilter("w-1"), 100.0
    for number in range(declined_before):
        claim_filter.declines(item("w-1", attempt=10 + number), 5, now)
    looks = 0
    while claim_filter.declines(item("w-1"), 5, now):
        now, looks = now + claim_filter.next_pause_s(chance), looks + 1
    assert now == pytest.approx(100.0 + PATIENCE_S)
    assert looks < 10  # and it does not look all the time


def test_of_work_that_is_declined_together_the_first_whose_patience_ends_is_looked_for() -> None:
    mailboxes = served("work", managed=False)
    mailboxes.pause("work", 3.0)
    mailboxes.pause("work", 9.0)
    assert mailboxes.resumes_at == 3.0


def test_what_it_remembers_is_bounded() -> None:
    def after(declined: int) -> Callable[[], ClaimFilter]:
        def fill() -> ClaimFilter:
            claim_filter = ClaimFilter("w-1")
            for n in range(declined):
                claim_filter.declines(item("w-1", attempt=n), 1, 0)
            return claim_filter

        return fill

    assert kept_bytes(after(5_000)) < 1.5 * kept_bytes(after(1_000))
