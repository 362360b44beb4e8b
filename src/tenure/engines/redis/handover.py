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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from tenure.engines.contracts import BodyT, Message, ReplyT
from tenure.engines.long_poll import LongPolls, LookResult
from tenure.engines.redis.connections import HANDED_S, Answer
from tenure.engines.redis.pipelined_commands import PipelinedCommands
from tenure.engines.server_wakeups import ServerTopic
from tenure.errors import EngineUnavailableError, TenureError

if TYPE_CHECKING:
    from tenure.engines.redis.mailbox import RedisMailbox, RedisMessage

log = logging.getLogger("tenure.engines.redis")


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

    __slots__ = (
        "asked_at",
        "condition",
        "handed",
        "left_at",
        "message",
        "over",
        "rest",
        "take",
        "taken",
        "taking",
        "text",
        "token",
    )

    def __init__(self, token: str, text: str, asked_at: float, condition: threading.Condition) -> None:
        self.token, self.text, self.asked_at, self.condition = token, text, asked_at, condition
        self.left_at = 0
        """The server's time when the offer was left, in microseconds; 0 when it was not left, or its claim had no answer."""
        self.handed: HandedMessage | None = None
        """Set by the listening thread, under the condition on which the consumer waits."""
        self.rest = b""
        self.message: Any = None
        """The message that the listening thread took."""
        self.take: Callable[[Offer], bool] | None = None
        """Takes what was handed over, in the listening thread; False leaves it to the consumer's own."""
        self.over = self.taking = self.taken = False
        """The consumer's thread looks after it no longer; the listening thread is in `take`; it took the message. All under the condition."""

    def arrived(self, handed: HandedMessage, rest: bytes) -> bool:
        """The listening thread calls it. Returns True when it took what was handed over."""
        with self.condition:
            if self.over:
                return False  # its consumer takes it back from the server, and with it what was handed over
            self.handed, self.rest, self.taking = handed, rest, self.take is not None
            if not self.taking:  # otherwise later: the consumer's thread would only want the interpreter meanwhile
                self.condition.notify_all()
        if self.take is not None:  # without the condition: it takes other locks
            taken = False
            try:
                taken = self.take(self)
            finally:
                with self.condition:
                    self.taking, self.taken = False, taken
                    self.condition.notify_all()
        return self.taken

    def end(self) -> bool:
        """The consumer's thread calls it. Returns True when the listening thread took what was handed over; otherwise it takes nothing any more."""
        with self.condition:
            self.over = True
            while self.taking:
                self.condition.wait()
            return self.taken


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
        if offer.arrived(handed, rest):
            self._open.pop(handed.token, None)  # `close` takes back what was handed over on those that are open

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
        take: Callable[[Message[BodyT, ReplyT]], None] | None = None,
    ) -> None:
        """`claim` makes one claim, with an offer to leave, and offers to take back. Its consumer waits on `topic`. `take` gets a message in the
        listening thread, where its lease needs no confirmation; the poll ends then, and does not return it."""
        self._take = take if not stage and lease_s <= HANDED_S else None
        self._was_taken = False
        self._mailbox, self._lease_s, self._stage, self._topic, self._claim = mailbox, lease_s, stage, topic, claim
        self._engine, self._offers = mailbox.engine, mailbox.engine.offers
        self._offer: Offer | None = None
        self._stale: list[str] = []
        """Offers that the server may still have, and on which nothing is accepted any more. The next claim withdraws them."""

    def poll(self, polls: LongPolls, wait_s: float) -> list[Message[BodyT, ReplyT]]:
        try:
            found = polls.poll(wait_s, self.look, handed=self.handed)
            return [] if self._was_taken else found
        finally:
            self.withdraw()

    def handed(self) -> bool:
        return self._offer is not None and self._offer.handed is not None and not self._offer.taking

    def _take_at_once(self, offer: Offer) -> bool:
        """Runs in the listening thread. Leaves to the consumer's what it cannot take without a question to the server."""
        assert self._take is not None
        assert offer.handed is not None
        if not offer.left_at:
            return False  # the claim that leaves the offer has no answer yet: the time of the hand-over cannot be told
        with contextlib.suppress(TenureError):
            accepted = self._accept(offer, offer.handed)
            if accepted is not None and accepted.found:
                offer.message = accepted.found[0]
                self._take(accepted.found[0])
                return True
        return False

    def look(self) -> LookResult[Message[BodyT, ReplyT]]:
        offered, self._offer = self._offer, None
        if offered is not None:
            self._was_taken = offered.end()
            self._offers.forget(offered)
            if self._was_taken:
                return LookResult([offered.message])
            if offered.handed is not None and (accepted := self._accept(offered, offered.handed)) is not None:
                return accepted
            self._stale.append(offered.text)
        offer = None
        if self._topic.listening:  # otherwise nothing that is handed over would arrive
            offer = self._offers.make(self._mailbox, round(self._lease_s * 1e6), self._stage, self._topic)
            offer.take = self._take_at_once if self._take is not None else None
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
            if not self._offer.end():
                self._stale.append(self._offer.text)
            self._offers.forget(self._offer)
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
