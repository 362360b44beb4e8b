"""The lease under any sequence of beats, silences and engine failures, against what the documents promise."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenure.beat.heartbeat import Heartbeat
from tenure.beat.lease import LeaseExtender, LeaseExtenderConfig, adapted_interval
from tenure.clock import ManualClock
from tenure.testing import FakeMailbox, create_test_message

LEASE, INTERVAL = 60.0, 20.0


@given(gaps=st.lists(st.floats(0.01, LEASE - INTERVAL - 0.01), min_size=1, max_size=60))
def test_work_whose_gaps_fit_between_interval_and_lease_is_delivered_once_however_long_it_lasts(
    gaps: list[float],
) -> None:
    clock = ManualClock()
    mailbox = FakeMailbox(clock=clock)
    message = create_test_message(visibility_timeout=LEASE, mailbox=mailbox)
    heartbeat = Heartbeat(clock=clock)
    with LeaseExtender(LeaseExtenderConfig().for_lease(LEASE)).attach(message, heartbeat) as lease:
        for gap in gaps:
            clock.advance(gap)
            assert mailbox.receive() == []
            heartbeat.beat()
    assert not lease.lost
    message.acknowledge()


@given(gaps=st.lists(st.floats(0.001, 30), min_size=1, max_size=100))
def test_there_is_never_more_than_one_call_per_interval(gaps: list[float]) -> None:
    clock = ManualClock()
    message, heartbeat = create_test_message(clock=clock), Heartbeat(clock=clock)
    config = LeaseExtenderConfig(interval=10, extension=300)
    calls: list[float] = []
    with LeaseExtender(config).attach(message, heartbeat):
        for gap in gaps:
            clock.advance(gap)
            before = message.extend_visibility_calls
            heartbeat.beat()
            if message.extend_visibility_calls > before:
                calls.append(clock.monotonic())
    # Gaps of up to 30 s leave an interval of 10 s alone on a lease of 300 s.
    assert adapted_interval(10, 300, 30) == 10
    assert all(later - earlier > 10 - 1e-6 for earlier, later in pairwise(calls))
    assert len(calls) >= 1


class LeaseMachine(RuleBasedStateMachine):
    """One attached message, driven by beats, time, lost connections and an engine that takes the lease away."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.mailbox = FakeMailbox(clock=self.clock)
        self.message = create_test_message(visibility_timeout=LEASE, mailbox=self.mailbox)
        self.heartbeat = Heartbeat(clock=self.clock)
        self.told: list[str] = []
        extender = LeaseExtender(
            LeaseExtenderConfig(interval=INTERVAL, extension=LEASE), on_lost=lambda message, why: self.told.append(why)
        )
        self.attachment = extender.attach(self.message, self.heartbeat, lease_s=LEASE)
        self.lease = self.attachment.__enter__()
        self.expires = self.clock.boottime() + LEASE  # the model: when the engine gives it to somebody else
        self.connected = True
        self.taken = False

    @rule(seconds=st.floats(0.1, 70))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def beat(self) -> None:
        before = self.message.extend_visibility_calls
        self.heartbeat.beat()
        called = self.message.extend_visibility_calls > before
        if called and self.connected and not self.gone():
            self.expires = self.clock.boottime() + LEASE

    @rule()
    def the_connection_is_lost(self) -> None:
        self.mailbox.lose_connection()
        self.connected = False

    @rule()
    def the_connection_is_back(self) -> None:
        self.mailbox.restore_connection()
        self.connected = True

    @precondition(lambda self: not self.gone())
    @rule()
    def the_engine_takes_it_away(self) -> None:
        self.mailbox.expire(self.message)
        self.taken = True

    def gone(self) -> bool:
        return self.taken or self.clock.boottime() >= self.expires

    @invariant()
    def a_lease_that_ran_out_is_known_to_be_lost_without_asking_anybody(self) -> None:
        if self.clock.boottime() >= self.expires:
            assert self.lease.lost

    @invariant()
    def a_lease_is_not_given_up_while_the_engine_holds_it_for_us(self) -> None:
        if not self.gone():
            assert not self.lease.lost

    @invariant()
    def the_holder_is_told_at_most_once(self) -> None:
        assert len(self.told) <= 1
        if self.told:
            assert self.lease.lost
            assert self.gone()

    def teardown(self) -> None:
        self.attachment.__exit__(None, None, None)


TestLease = LeaseMachine.TestCase
