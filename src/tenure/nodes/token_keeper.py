"""Keeps the tokens that operators create and revoke: in the engine's store, so that every node on that engine knows them within a second.

A token of a file can be revoked, too, by its id, which is the same on every node. Whoever can write to the engine can create tokens: it is the
root of all trust anyway (docs/security.md). While the engine does not answer, the list that was read last counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from tenure.clock import Clock
from tenure.control.messages.tokens import (
    MOST_REVOKED,
    MOST_TOKENS,
    CreateToken,
    ListTokens,
    RevokeToken,
    TellRevoked,
    Token,
    TokenDone,
    TokenList,
)
from tenure.control.messages.wire import Handlers, Reply
from tenure.control.tokens import TokenBook, check_token, row_of
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import ConfigurationError, EngineError
from tenure.logs import NodeLog

STORE = "tokens"
REFRESH_S = 1.0
_TOKEN, _REVOKED = "token/", "revoked/"


class CreatedToken(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the store. It never changes: a revocation has a key of its own."""

    token: Token
    created_by: str = ""
    created_at: float = 0.0


class TokenKeeper:
    """Part of a node's process. `install` gets the book of tokens each time that it changes."""

    def __init__(
        self,
        engine: Engine,
        calls: Calls,
        clock: Clock,
        log: NodeLog,
        base: TokenBook,
        install: Callable[[TokenBook], None],
    ) -> None:
        """`base` has the tokens that the node was started with. Where it has none, the node lets everybody in, and keeps no tokens."""
        self._store, self._calls, self._clock, self._log = engine.store(STORE), calls, clock, log
        self._base, self._install = base, install
        self._asked_for = asyncio.Event()
        """Set once there are tokens: a port without any reads no list, and wakes nobody for it."""
        self._created: dict[str, CreatedToken] = {}
        self._bad: set[str] = set()
        self.revoked: frozenset[str] = frozenset()
        self.handlers: Handlers = {
            CreateToken: self.create,
            RevokeToken: self.revoke,
            ListTokens: self.rows,
            TellRevoked: self.told,
        }

    # The list, from the store to the door

    def rebase(self, base: TokenBook) -> None:
        """Takes tokens that were read anew from their file."""
        self._base = base
        if not base.empty:
            self._asked_for.set()
        self._join()

    async def begin(self, stop: asyncio.Event) -> None:
        """Reads the list for the first time. A node that did not know it would refuse callers that it should let in."""
        while not stop.is_set():
            try:
                await self.refresh()
                return
            except EngineError as error:
                self._log.warning(f"the tokens of this engine cannot be read yet: {error}")
                await self._clock.async_wait(stop, REFRESH_S)

    async def run(self) -> None:
        """Reads the list again and again, so that what another node wrote counts here."""
        if not self._base.empty:
            self._asked_for.set()
        while True:
            await self._asked_for.wait()
            await self._clock.async_sleep(REFRESH_S)
            try:
                await self.refresh()
            except EngineError:
                continue  # the node says by itself that its engine does not answer

    async def refresh(self) -> None:
        if self._base.empty:
            return
        created: dict[str, CreatedToken] = {}
        revoked: set[str] = set()
        after: str | None = None
        while page := await self._calls.run(self._store.scan, "", after=after):
            after = page[-1][0]
            for key, value in page:
                if key.startswith(_REVOKED):
                    revoked.add(key.removeprefix(_REVOKED))
                elif (found := self._read(key, value)) is not None:
                    created[found.token.id] = found
        if created != self._created or revoked != self.revoked:
            self._created, self.revoked = created, frozenset(revoked)
            self._join()

    def _read(self, key: str, value: bytes) -> CreatedToken | None:
        """Returns a record; None for one that cannot be used: it lets nobody in, and keeps no other from it."""
        try:
            found = msgspec.json.decode(value, type=CreatedToken)
            check_token(found.token)
            return found
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConfigurationError) as error:
            if key not in self._bad and len(self._bad) < MOST_TOKENS:
                self._bad.add(key)
                self._log.warning(f"the token {key!r} of the engine's store cannot be used: {error}")
            return None

    def _join(self) -> None:
        newest: dict[str, Token] = {}
        for one in sorted(self._created.values(), key=lambda one: one.created_at):
            if one.token.id not in self.revoked:
                newest[one.token.name] = one.token
        self._install(self._base.joined(newest.values(), self.revoked))

    # Requests

    async def create(self, request: CreateToken) -> Reply:
        self._check_locked()
        token = request.token
        check_token(token)
        await self.refresh()
        known = self._created.get(token.id)
        if known is None or known.token != token:
            self._check_new(token)
            record = CreatedToken(token=token, created_by=request.by, created_at=self._clock.wall())
            await self._calls.run(self._store.put, _TOKEN + token.id, msgspec.json.encode(record))
            await self.refresh()
        return TokenDone(id=token.id)

    def _check_locked(self) -> None:
        if self._base.empty:
            raise ConfigurationError(
                "this node has no token, and lets everybody in",
                remedy="Start the nodes with TENURE_TOKEN or --tokens; then create tokens with that one",
            )

    def _check_new(self, token: Token) -> None:
        if token.id in self.revoked or token.id in self._created:
            raise ConfigurationError(f"the token {token.id} was created before", remedy="Make another secret")
        now = self._clock.wall()
        taken = [
            *([one] if (one := self._base.named(token.name)) is not None else ()),
            *(one.token for one in self._created.values() if one.token.name == token.name),
        ]
        if any(one.id not in self.revoked and (one.expires is None or one.expires.timestamp() > now) for one in taken):
            raise ConfigurationError(
                f"a token named {token.name!r} is in use", remedy="Choose another name, or revoke that one first"
            )
        if len(self._created) >= MOST_TOKENS:
            raise ConfigurationError(
                f"{len(self._created):,} tokens were created, and {MOST_TOKENS:,} may be",
                remedy="Write tokens that last into a file (--tokens)",
            )

    async def revoke(self, request: RevokeToken) -> Reply:
        self._check_locked()
        await self._note_revoked((request.id,))
        return TokenDone(id=request.id)

    async def told(self, request: TellRevoked) -> Reply:
        if not self._base.empty:  # a node that lets everybody in keeps no list that anybody could fill
            await self._note_revoked(request.ids)
        return TokenDone(id="")

    async def _note_revoked(self, ids: tuple[str, ...]) -> None:
        await self.refresh()
        new = [one for one in ids if one not in self.revoked]
        if len(self.revoked) + len(new) > MOST_REVOKED:
            raise ConfigurationError(
                f"{len(self.revoked):,} tokens are revoked, and {MOST_REVOKED:,} may be",
                remedy="Take revoked tokens out of the files, and delete their keys from the engine's store",
            )
        for one in new:
            await self._calls.run(self._store.put, _REVOKED + one, b"{}")
        if new:
            await self.refresh()

    async def rows(self, request: ListTokens) -> Reply:
        await self.refresh()
        base = self._base.joined((), self.revoked)
        created = [
            row_of(
                one.token,
                "engine",
                revoked=one.token.id in self.revoked,
                created_by=one.created_by,
                created_at=one.created_at,
            )
            for one in self._created.values()
        ]
        return TokenList(tokens=(*base.rows(), *created), revoked=tuple(sorted(self.revoked)))
