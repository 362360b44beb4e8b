"""What our nodes do with the messages of Serf's own layer: take part in its intents, obey its key queries, pass on the rest."""

from __future__ import annotations

from tenure.errors import WireError
from tenure.gossip.keyring import Keyring
from tenure.gossip.messages import User
from tenure.gossip.pool import Pool
from tenure.gossip.serf import Intent, SerfClock, decode_intent
from tenure.gossip.serf_keys import SerfQueries
from tenure.gossip.wire import encode


class SerfLayer:
    """A polite member of a Serf pool."""

    def __init__(self, pool: Pool, keyring: Keyring | None) -> None:
        self._pool = pool
        self.clock = SerfClock()
        self._queries = SerfQueries(pool.me.name, keyring)

    def hear(self, message: User) -> None:
        """An intent, a query about keys, or what only Serf's applications understand."""
        try:
            intent = decode_intent(message.payload)
            if intent is not None:
                self._hear_intent(message, intent)
            elif self._queries.is_news(message.payload):
                self._hear_query(message)
        except WireError:
            self._pool.counters.malformed += 1

    def _hear_intent(self, message: User, intent: Intent) -> None:
        me, fresh = self._pool.me, intent.time >= self.clock.time
        self.clock.witness(intent.time)
        if intent.leaves and intent.node == me.name and not self._pool.leaving:
            # Somebody says that we leave (`serf force-leave`, or a former life of ours): we do not.
            self._say(self.clock.stay(me.name))
        elif fresh:
            self._say(message.payload)

    def _hear_query(self, message: User) -> None:
        reply, forward = self._queries.answer(message.payload)
        if forward:
            self._say(message.payload)
        if reply is not None:
            self._pool.send_parts(reply.to, [encode(User(reply.payload))])

    def say_leaving(self) -> None:
        """Tell the pool's Serf agents that we go on purpose."""
        self._say(self.clock.leave(self._pool.me.name))

    def _say(self, payload: bytes) -> None:
        self._pool.queue.put_unnamed(encode(User(payload)))
