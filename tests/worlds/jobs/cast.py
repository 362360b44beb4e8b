"""The cast of the small world: a datacenter's leader and a gate, each as a function from state and input to state.

A node's state is its snapshot, interned as a number. What it does with an input is computed once, by the real `decide`
and the real fold on a book restored from that snapshot, and remembered. So the search runs over tuples of numbers and
still visits what the nodes would really do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tenure.errors import IllegalTransitionError
from tenure.jobs.attempt_results import RecordResult
from tenure.jobs.attempts import RecordStarted
from tenure.jobs.book import JobBook
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command, Decision, Outcome, Rule, Rules
from tenure.jobs.gate_decisions import CheckGlobal
from tenure.jobs.gate_exchange import AnswerQuery, report_for
from tenure.jobs.gate_jobs import GateCancel, GateSubmit, GateTakeLead
from tenure.jobs.gate_outbox import owed
from tenure.jobs.gate_reports import HearCorrection
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.messages import Identity, JobProgressReport, JobReportAck, JobStatusQuery, JobTimeoutReport
from tenure.jobs.model import JobSubmission
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.timeout import CheckJob
from tenure.jobs.topics import decide, decide_gate
from tests.worlds.jobs.abstraction import (
    DatacenterView,
    GateView,
    canonical,
    exchange,
    forget_in_book,
    forget_in_gate,
    gate_view_of,
    view_of,
)
from tests.worlds.jobs.promises import broken_by_datacenter, broken_by_gate
from tests.worlds.jobs.scene import (
    DATACENTERS,
    FIRST_EPOCH,
    GATE_SETTINGS,
    JOB,
    MANAGER_SETTINGS,
    SUBMISSION,
    TICKS,
    Letter,
    gate_command,
    manager_command,
    plain,
    words_of,
    worth_sending,
)


class Step(NamedTuple):
    """What a node made of an input."""

    state: int
    letters: tuple[int, ...]
    words: str
    broken: str | None = None
    """The promise that this step broke."""


class Cast:
    """Interned states and messages, and remembered steps, under one set of rules."""

    def __init__(self, rules: Rules, *, correction_withdraws: bool = False) -> None:
        self.rules = rules
        self.correction_withdraws = correction_withdraws
        self._books: dict[bytes, int] = {}
        self._book_list: list[bytes] = []
        self.views: list[DatacenterView] = []
        self._gates: dict[bytes, int] = {}
        self._gate_list: list[bytes] = []
        self.gate_views: list[GateView] = []
        self._swapped: dict[int, int] = {}
        self._letters: dict[bytes, int] = {}
        self.letters: list[Letter] = []
        self._letter_swap: dict[int, int] = {}
        self._steps: dict[tuple[object, ...], Step] = {}

    # Where it begins: the gate has accepted the job, one datacenter runs it, the other has not heard of it.

    def start(self) -> tuple[int, int, int]:
        book = JobBook(MANAGER_SETTINGS)
        self._fold(book, TakeLead(epoch=1, leader="m"), 0.0)
        unheard = self.intern_book(book, 0)
        tracker = GateJobTracker(GATE_SETTINGS)
        for command in (
            GateTakeLead(epoch=FIRST_EPOCH, gate="g"),
            GateSubmit(submission=SUBMISSION, target_datacenters=DATACENTERS),
        ):
            tracker.apply_all(decide_gate(tracker, command, 0.0, self.rules).events)
        gate = self.intern_gate(tracker, 0)
        opening = next(index for index in self.gate_owes(gate) if self.letters[index].datacenter == DATACENTERS[0])
        running = self.deliver_to_datacenter(unheard, opening, 0).state
        report = self.report(running, DATACENTERS[0], 0)
        assert report is not None
        return running, unheard, self.deliver_to_gate(gate, report, 0).state

    # What a datacenter does.

    def datacenter_step(self, book_id: int, name: str, command: Command, tick: int, key: str) -> Step:
        """A local command: a check, a result, a takeover."""
        memo = ("local", book_id, name, key, tick)
        step = self._steps.get(memo)
        if step is None:
            book = self._book(book_id)
            step = self._steps[memo] = self._settle_book(book, self._decide(book, command, tick), name, tick)
        return step

    def check(self, book_id: int, name: str, tick: int) -> Step:
        return self.datacenter_step(book_id, name, CheckJob(job_id=JOB), tick, "check")

    def complete(self, book_id: int, name: str, tick: int) -> Step:
        done = RecordResult(job_id=JOB, workflow="w", attempt=1)
        return self.datacenter_step(book_id, name, done, tick, "complete")

    def take_over(self, book_id: int, name: str, tick: int) -> Step:
        epoch = self.views[book_id].leaders + 1
        return self.datacenter_step(book_id, name, TakeLead(epoch=epoch, leader="m"), tick, "take over")

    def age_book(self, book_id: int, tick: int) -> int:
        """The same state, seen at a later tick."""
        memo = ("age", book_id, tick)
        step = self._steps.get(memo)
        if step is None:
            step = self._steps[memo] = Step(self.intern_book(self._book(book_id), tick), (), "")
        return step.state

    def age_gate(self, gate_id: int, tick: int) -> int:
        memo = ("age gate", gate_id, tick)
        step = self._steps.get(memo)
        if step is None:
            step = self._steps[memo] = Step(self.intern_gate(self._tracker(gate_id), tick), (), "")
        return step.state

    def report(self, book_id: int, name: str, tick: int) -> int | None:
        """The report that its leader would send now."""
        memo = ("report", book_id, name, tick)
        step = self._steps.get(memo)
        if step is None:
            info = self._book(book_id).jobs.get(JOB)
            said = report_for(info, Identity(name, "m"), TICKS[tick], MANAGER_SETTINGS) if info else None
            letters = (self.intern_letter(Letter(name, True, plain(said))),) if said is not None else ()
            step = self._steps[memo] = Step(book_id, letters, "")
        return step.letters[0] if step.letters else None

    def would_answer(self, book_id: int, name: str) -> int | None:
        """The correction with which it answers, where its report does not say the same.

        That is: when it knows only a tombstone, and when it waits, since then it reports a timeout.
        """
        memo = ("would answer", book_id, name)
        step = self._steps.get(memo)
        if step is None:
            book = self._book(book_id)
            letters: tuple[int, ...] = ()
            if self.views[book_id].waiting or (JOB not in book.jobs and JOB in book.state.tombstones):
                query = AnswerQuery(message=JobStatusQuery(job_id=JOB), identity=Identity(name, "m"))
                reply = decide(book, query, 0.0, self.rules).reply
                assert reply is not None
                letters = (self.intern_letter(Letter(name, True, plain(reply))),)
            step = self._steps[memo] = Step(book_id, letters, "")
        return step.letters[0] if step.letters else None

    def would_acknowledge(self, gate_id: int) -> tuple[int, ...]:
        """The acknowledgements with which it answers reports."""
        memo = ("would acknowledge", gate_id)
        step = self._steps.get(memo)
        if step is None:
            tracker = self._tracker(gate_id)
            info = tracker.jobs.get(JOB)
            acks = [
                JobReportAck(job_id=JOB, datacenter=dc, status=status, fence_token=0, gate_epoch=tracker.epoch)
                for dc, status in (info.dc_status.items() if info else ())
            ]
            letters = tuple(self.intern_letter(Letter(ack.datacenter, False, ack)) for ack in acks)
            step = self._steps[memo] = Step(gate_id, letters, "")
        return step.letters

    def deliver_to_datacenter(self, book_id: int, letter_id: int, tick: int) -> Step:
        memo = ("to datacenter", book_id, letter_id, tick)
        step = self._steps.get(memo)
        if step is None:
            letter = self.letters[letter_id]
            book = self._book(book_id)
            command = manager_command(letter)
            decision = self._decide(book, command, tick)
            step = self._steps[memo] = self._settle_book(book, decision, letter.datacenter, tick)
        return step

    def _decide(self, book: JobBook, command: Command, tick: int) -> Decision:
        if JOB not in book.jobs and isinstance(command, CheckJob | RecordResult):
            return Decision([], Outcome.NOTHING, Rule.FOLLOWED)
        return decide(book, command, TICKS[tick], self.rules)

    def _fold(self, book: JobBook, command: Command, now: float) -> None:
        book.apply_all(decide(book, command, now, self.rules).events)

    def _settle_book(self, book: JobBook, decision: Decision, name: str, tick: int) -> Step:
        broken = None
        for event in decision.events:
            broken = broken or broken_by_datacenter(event, book.jobs.get(JOB))
            try:
                book.apply(event)
            except IllegalTransitionError as error:
                return Step(self.intern_book(book, tick), (), words_of(decision), broken or f"none ends twice: {error}")
            if isinstance(event, JobSubmitted) and len(decision.events) == 1:
                self._fold(book, RecordStarted(job_id=JOB, workflow="w", attempt=1, worker="x"), event.at)
        letters: tuple[int, ...] = ()
        if decision.reply is not None:
            letters = (self.intern_letter(Letter(name, True, plain(decision.reply))),)
        return Step(self.intern_book(book, tick), letters, words_of(decision), broken)

    # What a gate does.

    def gate_check(self, gate_id: int, tick: int) -> Step:
        return self._gate_step(gate_id, CheckGlobal(job_id=JOB), tick, "check")

    def gate_cancel(self, gate_id: int, tick: int) -> Step:
        return self._gate_step(gate_id, GateCancel(job_id=JOB, reason="cancelled"), tick, "cancel")

    def gate_succeed(self, gate_id: int, tick: int) -> Step:
        epoch = self.gate_views[gate_id].epoch + 1
        return self._gate_step(gate_id, GateTakeLead(epoch=epoch, gate="g"), tick, "succeed")

    def gate_forgets(self, tick: int) -> Step:
        """A successor that finds neither journal nor counter: it begins at epoch 1 and knows nothing."""
        tracker = GateJobTracker(GATE_SETTINGS)
        tracker.apply_all(decide_gate(tracker, GateTakeLead(epoch=1, gate="g"), TICKS[tick], self.rules).events)
        return Step(self.intern_gate(tracker, tick), (), "it knows nothing")

    def deliver_to_gate(self, gate_id: int, letter_id: int, tick: int) -> Step:
        memo = ("to gate", gate_id, letter_id, tick)
        step = self._steps.get(memo)
        if step is None:
            letter = self.letters[letter_id]
            step = self._steps[memo] = self._gate_decides(gate_id, gate_command(letter), tick, letter)
        return step

    def gate_owes(self, gate_id: int) -> tuple[int, ...]:
        """What it would send now, to each datacenter."""
        memo = ("owes", gate_id)
        step = self._steps.get(memo)
        if step is None:
            tracker = self._tracker(gate_id)
            info = tracker.jobs.get(JOB)
            items = owed(tracker, info, self.rules) if info else []
            letters = tuple(self.intern_letter(Letter(item.datacenter, False, item.message)) for item in items)
            step = self._steps[memo] = Step(gate_id, letters, "")
        return step.letters

    def _gate_step(self, gate_id: int, command: Command, tick: int, key: str) -> Step:
        memo = ("gate", gate_id, key, tick)
        step = self._steps.get(memo)
        if step is None:
            step = self._steps[memo] = self._gate_decides(gate_id, command, tick, None)
        return step

    def _gate_decides(self, gate_id: int, command: Command, tick: int, letter: Letter | None) -> Step:
        tracker = self._tracker(gate_id)
        if isinstance(command, CheckGlobal) and JOB not in tracker.jobs:
            return Step(gate_id, (), "it does not know the job")
        decision = decide_gate(tracker, command, TICKS[tick], self.rules)
        broken = None
        for event in decision.events:
            broken = broken or broken_by_gate(event, tracker)
            try:
                tracker.apply(event)
            except (IllegalTransitionError, AssertionError) as error:
                return Step(
                    self.intern_gate(tracker, tick), (), words_of(decision), broken or f"none ends twice: {error}"
                )
        words = words_of(decision)
        if decision.campaign_above:
            # A shell campaigns again, above what it was shown.
            again = GateTakeLead(epoch=decision.campaign_above + 1, gate="g")
            tracker.apply_all(decide_gate(tracker, again, TICKS[tick], self.rules).events)
            words += f"; it campaigns, and leads with epoch {tracker.epoch}"
        if self.correction_withdraws and isinstance(command, HearCorrection):
            info = tracker.jobs.get(JOB)
            if info is not None and info.decided is not None and not command.correction.status.terminal:
                info.decided, info.globally_timed_out = None, False
                info.dc_timeouts.clear()
                broken = "no accepted decision is forgotten: the gate took its decision back"
                words += "; it takes its decision back"
        if JOB in tracker.jobs and tracker.next_due(JOB) == 0.0:
            # Its timer is due at once, so a shell checks before it does anything else.
            check = decide_gate(tracker, CheckGlobal(job_id=JOB), TICKS[tick], self.rules)
            tracker.apply_all(check.events)
            words += f"; it checks: {words_of(check)}"
        letters: tuple[int, ...] = ()
        if decision.ack is not None and letter is not None and worth_sending(decision.ack, letter):
            letters = (self.intern_letter(Letter(letter.datacenter, False, plain(decision.ack))),)
        return Step(self.intern_gate(tracker, tick), letters, words, broken)

    # Interning: only what can make a difference to what comes is kept apart.

    def intern_book(self, book: JobBook, tick: int) -> int:
        forget_in_book(book, TICKS[tick])
        encoded = book.snapshot()
        index = self._books.get(encoded)
        if index is None:
            index = self._books[encoded] = len(self._book_list)
            self._book_list.append(encoded)
            self.views.append(view_of(book))
        return index

    def intern_gate(self, tracker: GateJobTracker, tick: int) -> int:
        forget_in_gate(tracker, TICKS[tick])
        return self._keep_gate(tracker)

    def _keep_gate(self, tracker: GateJobTracker) -> int:
        if info := tracker.jobs.get(JOB):
            info.target_datacenters.sort()
        encoded = canonical(tracker.state)
        index = self._gates.get(encoded)
        if index is None:
            index = self._gates[encoded] = len(self._gate_list)
            self._gate_list.append(encoded)
            self.gate_views.append(gate_view_of(tracker))
        return index

    def intern_letter(self, letter: Letter) -> int:
        encoded = canonical(letter)
        index = self._letters.get(encoded)
        if index is None:
            index = self._letters[encoded] = len(self.letters)
            self.letters.append(letter)
        return index

    def swap_gate(self, gate_id: int) -> int:
        """The same gate with the datacenters' names exchanged."""
        other = self._swapped.get(gate_id)
        if other is None:
            exchanged = exchange(self._gate_list[gate_id])
            tracker = GateJobTracker.restore(exchanged, GATE_SETTINGS)
            other = self._swapped[gate_id] = self._keep_gate(tracker)
            self._swapped[other] = gate_id
        return other

    def swap_letter(self, letter_id: int) -> int:
        other = self._letter_swap.get(letter_id)
        if other is None:
            letter = self.letters[letter_id]
            kind: Any = type(letter.message)
            message = msgspec.msgpack.decode(exchange(canonical(letter.message)), type=kind)
            if isinstance(message, JobSubmission | JobProgressReport | JobTimeoutReport):
                message = msgspec.structs.replace(message, target_datacenters=DATACENTERS)
            name = DATACENTERS[1 - DATACENTERS.index(letter.datacenter)]
            other = self._letter_swap[letter_id] = self.intern_letter(Letter(name, letter.to_gate, message))
            self._letter_swap[other] = letter_id
        return other

    def _book(self, book_id: int) -> JobBook:
        return JobBook.restore(self._book_list[book_id], MANAGER_SETTINGS)

    def _tracker(self, gate_id: int) -> GateJobTracker:
        return GateJobTracker.restore(self._gate_list[gate_id], GATE_SETTINGS)
