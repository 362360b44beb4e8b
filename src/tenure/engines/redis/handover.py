"""Messages that are handed over: the script that sends gives a message to a consumer that waits, already claimed for it.

Four steps, in the words of the scripts (`lua/`):
1. A consumer that finds nothing leaves an *offer* with its claim, under the claim's token (`claim.lua`).
2. The script that sends *hands* the message *over*: it publishes it to the address of the consumer's process (`hand.lua`). The wake-up
   listener gives it to `Offers.hand_over`. No second round trip is made, and with `appendfsync always` no second sync waited for.
3. The consumer *confirms* that it arrived (`confirm.lua`), without waiting for the answer. Until the answer is read, its lease is a short one.
4. A consumer that waits no longer *withdraws* its offer, and with it whatever was handed over on it (`withdraw.lua`).

Decision 0171 says what happens to a consumer that does not confirm.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import msgspec

from tenure.engines.contracts import BodyT, Message, ReplyT
from tenure.engines.long_poll import LongPolls, LookResult
from tenure.engines.redis.connections import HANDED_S, NO_SCRIPT, Answer, RedisConnections, script
from tenure.engines.redis.session import Argument, RedisFailure, RedisRefused, RedisSession
from tenure.engines.server_wakeups import ServerTopic
from tenure.errors import EngineUnavailableError

if TYPE_CHECKING:
    from tenure.engines.redis.mailbox import RedisMailbox, RedisMessage

log = logging.getLogger("tenure.engines.redis")


_LAST_ANSWERS_S = 1.0
"""The seconds that closing waits for the last answers: closing on unread answers resets the connection, and commands may be lost with it."""


class PipelinedCommand(NamedTuple):
    """A script that was called, the time at which it was sent, and the function that gets its answer."""

    operation: str
    values: tuple[Argument, ...]
    sent_at: float
    on_answer: Callable[[Answer], None]


class PipelinedCommands:
    """Sends commands to the server without waiting for their answers, on a session of its own.

    A consumer that was handed a message confirms it, and one that stops waiting withdraws its offer. Neither has to wait for the answer,
    and both may arrive twice: a command that had no answer when the connection broke is sent again on the next one.

    Answers are read by the thread that sends the next command, or that asks for them with `read_answers`; no thread waits for them. So work
    that never lets go of the interpreter delays no confirmation, and reads the answer itself when it comes to ask. Safe to share between
    threads; a forked child begins anew.
    """

    def __init__(self, connections: RedisConnections) -> None:
        self._connections = connections
        self._closed = False
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._session: RedisSession | None = None
        self._unanswered: deque[PipelinedCommand] = deque()
        """In the order in which they were sent, which is the order of their answers."""

    def send(
        self, operation: str, *values: Argument, on_answer: Callable[[Answer], None] = lambda answer: None
    ) -> bool:
        """Calls a script. Returns False when the server cannot be reached: then nothing was sent."""
        if self._pid != os.getpid():
            self._begin_after_fork()
        with self._lock:
            if self._closed:
                return False
            self._read_arrived()
            command = PipelinedCommand(operation, values, self._connections.clock.monotonic(), on_answer)
            self._unanswered.append(command)
            return self._write(command)

    def read_answers(self) -> None:
        """Reads the answers that have arrived, without waiting for more."""
        if self._pid == os.getpid():
            with self._lock:
                self._read_arrived()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._session is not None and self._pid == os.getpid():
                with contextlib.suppress(RedisFailure, OSError):
                    while self._unanswered and self._session.pending(_LAST_ANSWERS_S):
                        self._read_one(self._session)
                self._drop_session()

    def _begin_after_fork(self) -> None:
        """The session and the commands without an answer are the parent's, and the lock may be held by a thread that is not here."""
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._session, self._unanswered = None, deque()

    def _write(self, *commands: PipelinedCommand) -> bool:
        """Writes to the session that there is. If that broke, opens another and sends everything that had no answer."""
        if self._session is not None:
            try:
                for command in commands:
                    self._write_one(self._session, command)
                return True
            except (RedisFailure, OSError):
                self._drop_session()
        try:
            self._session = self._connections.open_session()
            now = self._connections.clock.monotonic()
            self._unanswered = deque(command._replace(sent_at=now) for command in self._unanswered)
            for command in self._unanswered:
                self._write_one(self._session, command)
            return True
        except (RedisFailure, OSError):
            self._drop_session()
            self._unanswered.clear()
            return False

    def _read_arrived(self) -> None:
        if self._session is not None and not self._read_from(self._session):
            self._drop_session()
            if self._unanswered:
                self._write()

    def _read_from(self, session: RedisSession) -> bool:
        """Returns False when the connection broke, or the server has been silent for too long."""
        try:
            while session.pending():
                if not self._unanswered:
                    return False  # an answer to no command: the server says that it closes
                self._read_one(session)
        except (RedisFailure, OSError):
            return False
        now, patience_s = self._connections.clock.monotonic(), self._connections.settings.timeout_s
        return not self._unanswered or now < self._unanswered[0].sent_at + patience_s

    def _read_one(self, session: RedisSession) -> None:
        try:
            answer: Answer = session.read()
        except RedisRefused as error:
            if error.ends_session:
                raise
            command = self._unanswered.popleft()
            if error.word == NO_SCRIPT:  # the server's scripts were flushed: send this one whole, as the last
                self._unanswered.append(command)
                self._write_one(session, command, whole=True)
            # Any other: it was not done, and the next call on the message says why.
        else:
            command = self._unanswered.popleft()
            self._connections.note_writes(answer[0])
            command.on_answer(answer)

    def _write_one(self, session: RedisSession, command: PipelinedCommand, *, whole: bool = False) -> None:
        session.send(self._connections.command(script(command.operation), command.values, whole=whole))

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


class HandedMessage(msgspec.Struct, array_like=True, frozen=True):
    """The fields that `hand.lua` sends of a message; its checkpoint and body follow."""

    token: str
    mailbox: str
    id: str
    now: str
    writes: str
    generation: str
    failure: bool
    key: str | bool
    reply_to: str | bool
    checkpoint_bytes: int | bool

    def row(self, rest: bytes) -> list[Any]:
        """Returns it as a claim's answer has it: a first delivery."""
        size = None if self.checkpoint_bytes is False else int(self.checkpoint_bytes)
        checkpoint, body = (None, rest) if size is None else (rest[:size], rest[size:])
        key, reply_to = (str(word).encode() if word is not False else None for word in (self.key, self.reply_to))
        return [1, 0, self.id.encode(), self.now, self.generation, self.failure, key, reply_to, checkpoint, body, 0]


read_handed = msgspec.json.Decoder(HandedMessage).decode


class Offer:
    """Left with the server by one claim."""

    __slots__ = ("asked_at", "condition", "handed", "left_at", "rest", "text", "token")

    def __init__(self, token: str, text: str, asked_at: float, condition: threading.Condition) -> None:
        self.token, self.text, self.asked_at, self.condition = token, text, asked_at, condition
        self.left_at = 0
        """The server's time when the offer was left, in microseconds; 0 when it was not left, or its claim had no answer."""
        self.handed: HandedMessage | None = None
        """Set by the listening thread, under the condition on which the consumer waits."""
        self.rest = b""


class Offers:
    """The offers of one engine object. The listening thread looks up in them whom a message was handed over to."""

    def __init__(self, name: str, commands: PipelinedCommands) -> None:
        self._name, self._commands = name, commands
        self._open: dict[str, tuple[str, Offer]] = {}
        """Maps a token to the mailbox and the offer."""

    @property
    def address(self) -> str:
        """The id of this process: a forked child has the same name, and must not take its parent's messages."""
        return f"{self._name}.{os.getpid()}"

    @property
    def is_empty(self) -> bool:
        return not self._open

    def make(self, mailbox: RedisMailbox[Any, Any], lease_us: int, stage: int, topic: ServerTopic) -> Offer:
        """`topic` is the one that the consumer waits on."""
        token = mailbox.engine.new_token()
        text = f"{token} {self._name} {self.address} {lease_us} {stage}"
        offer = Offer(token, text, mailbox.engine.clock.boottime(), topic.condition)
        self._open[token] = (mailbox.name, offer)
        return offer

    def forget(self, offer: Offer) -> None:
        self._open.pop(offer.token, None)

    def hand_over(self, payload: bytes) -> None:
        """The listening thread calls it. A message on an offer that is not open any more is given back at once."""
        head, _, rest = payload.partition(b"\n")
        try:
            handed = read_handed(head)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("somebody published to %s what is no message", self.address)
            return
        _, offer = self._open.get(handed.token, ("", None))
        if offer is None:
            self._commands.send("withdraw", handed.mailbox, handed.token)
            return
        with offer.condition:
            offer.handed, offer.rest = handed, rest
            offer.condition.notify_all()

    def close(self) -> None:
        """Withdraws all, because nobody listens any more: a message may have been handed over a moment before.

        A forked child leaves its parent's offers alone.
        """
        ours = f" {self.address} "
        for mailbox, offer in [one for one in list(self._open.values()) if ours in one[1].text]:
            self._commands.send("withdraw", mailbox, offer.text)


class HandoverPoll(Generic[BodyT, ReplyT]):
    """One long poll: looks by claims that leave an offer in one mailbox, and accepts what is handed over there meanwhile."""

    def __init__(
        self,
        mailbox: RedisMailbox[BodyT, ReplyT],
        lease_s: float,
        stage: int,
        topic: ServerTopic,
        claim: Callable[[Offer | None, Sequence[str]], LookResult[Message[BodyT, ReplyT]]],
    ) -> None:
        """`claim` makes one claim, with an offer to leave, and offers to take back. Its consumer waits on `topic`."""
        self._mailbox, self._lease_s, self._stage, self._topic, self._claim = mailbox, lease_s, stage, topic, claim
        self._engine, self._offers = mailbox.engine, mailbox.engine.offers
        self._offer: Offer | None = None
        self._stale: list[str] = []
        """Offers that the server may still have, and on which nothing is accepted any more. The next claim withdraws them."""

    def poll(self, polls: LongPolls, wait_s: float) -> list[Message[BodyT, ReplyT]]:
        try:
            return polls.poll(wait_s, self.look, handed=self.handed)
        finally:
            self.withdraw()

    def handed(self) -> bool:
        return self._offer is not None and self._offer.handed is not None

    def look(self) -> LookResult[Message[BodyT, ReplyT]]:
        offered, self._offer = self._offer, None
        if offered is not None:
            self._offers.forget(offered)
            if offered.handed is not None and (accepted := self._accept(offered, offered.handed)) is not None:
                return accepted
            self._stale.append(offered.text)
        offer = None
        if self._topic.listening:  # otherwise nothing that is handed over would arrive
            offer = self._offers.make(self._mailbox, round(self._lease_s * 1e6), self._stage, self._topic)
        try:
            look = self._claim(offer, self._stale)
        except BaseException:  # it may have been left, or not
            if offer is not None:
                self._offers.forget(offer)
                self._stale.append(offer.text)
            raise
        self._stale.clear()
        if offer is not None and offer.left_at:
            self._offer = offer
        elif offer is not None:
            self._offers.forget(offer)
        return look

    def withdraw(self) -> None:
        """The poll is over."""
        if self._offer is not None:
            self._offers.forget(self._offer)
            self._stale.append(self._offer.text)
            self._offer = None
        if self._stale and self._topic.listening:  # without a listener nothing is handed over
            self._engine.commands.send("withdraw", self._mailbox.name, *self._stale)

    def _accept(self, offer: Offer, handed: HandedMessage) -> LookResult[Message[BodyT, ReplyT]] | None:
        """Returns the message; None when so much of its short lease has passed that we ask the server what became of it."""
        now, span = self._engine.clock.boottime(), min(self._lease_s, HANDED_S)
        # The server's time told in ours, by what we know to be earlier: the moment before we asked for the time that it told us.
        handed_at = min(now, offer.asked_at + (int(handed.now) - offer.left_at) / 1e6)
        if now > handed_at + span / 2:
            return None
        self._engine.connections.metrics.took("hand_over", now - handed_at)
        self._engine.connections.note_writes(int(handed.writes))
        message = self._mailbox.message(handed.row(offer.rest), offer.token, handed_at + span)
        if message is None:
            return LookResult([], again=True)
        if self._stage or self._lease_s > span:
            ends = int(handed.now) + round(self._lease_s * 1e6)
            return (
                LookResult([message])
                if self._confirm(message, ends, handed_at + self._lease_s)
                else LookResult([], again=True)
            )
        return LookResult([message])

    def _confirm(self, message: RedisMessage[BodyT, ReplyT], ends: int, lease_until: float) -> bool:
        """Confirms that the message arrived, without waiting for the answer if possible. Returns False when it is not ours any more."""
        commands, values = self._engine.commands, (self._mailbox.name, *message.receipt, ends, self._stage)

        def confirmed(answer: Answer) -> None:
            message.confirmed(lease_until if _is_ours(answer) else None)

        message.confirming(commands)
        if commands.send("confirm", *values, on_answer=confirmed):
            return True
        try:
            answer = self._mailbox.call("confirm", *values[1:])
        except EngineUnavailableError:
            self._mailbox.lost_claims.add(message.receipt[1])
            raise
        confirmed(answer)
        return _is_ours(answer)


def _is_ours(answer: Answer) -> bool:
    """An answer with a second word names the reason why the receipt is dead."""
    return len(answer) == 1
