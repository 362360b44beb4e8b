"""A mailbox in the simplest words, to hold engines against: lists, no speed, no threads."""

from __future__ import annotations

from dataclasses import dataclass, field

LIMIT = 3


@dataclass(eq=False)
class Mail:
    """One message as the model sees it."""

    id: str
    body: int
    key: str | None
    generation: int
    checkpoint: bytes | None = None
    state: str = "ready"  # ready, delayed, leased, dead, gone
    due: float = 0.0
    count: int = 0
    base: int = 0
    delivery: int = 0
    stage: str = ""  # of the delivery under lease: claimed, held, started
    fresh: bool = True  # never delivered, never delayed: these come in order
    suspect: bool = False  # its last claim ran out, and no holder has given it back since

    @property
    def used_up(self) -> bool:
        return self.count - self.base >= LIMIT


@dataclass
class KeyRecord:
    generation: int = -1
    revoked: bool = False
    live: Mail | None = None
    checkpoint: bytes | None = None


@dataclass
class Model:
    now: float = 0.0
    mail: list[Mail] = field(default_factory=list)
    keys: dict[str, KeyRecord] = field(default_factory=dict)
    replies: list[str] = field(default_factory=list)
    deliveries: int = 0

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for mail in self.mail:
            if mail.state in ("leased", "delayed") and mail.due <= self.now:
                if mail.state == "leased":
                    mail.suspect = True
                    mail.base += mail.stage == "claimed"  # it never started: its number stays used, and is forgiven
                mail.state, mail.fresh = "ready", False

    def accepts(self, key: str | None, generation: int) -> bool:
        known = self.keys.get(key) if key is not None else None
        return known is None or not (known.revoked or generation <= known.generation)

    def send(self, id: str, body: int, key: str | None, generation: int, delay: float) -> None:
        mail = Mail(id, body, key, generation)
        if key is not None:
            known = self.keys.setdefault(key, KeyRecord())
            if known.live is not None:
                mail.checkpoint, known.live.state = known.live.checkpoint, "gone"
            else:
                mail.checkpoint = known.checkpoint
            known.generation, known.live = generation, mail
        if delay:
            mail.state, mail.due, mail.fresh = "delayed", self.now + delay, False
        self.mail.append(mail)

    def of(self, state: str) -> list[Mail]:
        return [mail for mail in self.mail if mail.state == state]

    def claim(self, mail: Mail, lease: float, provisional: bool) -> int:
        self.deliveries += 1
        mail.state, mail.due, mail.delivery = "leased", self.now + lease, self.deliveries
        mail.stage, mail.fresh = "claimed" if provisional and not mail.suspect else "held", False
        mail.count += 1
        if lease == 0:
            self.pass_time(0)
        return self.deliveries

    def ours(self, mail: Mail, delivery: int) -> bool:
        return mail.state == "leased" and mail.delivery == delivery and mail.due > self.now

    def end(self, mail: Mail, state: str = "gone") -> None:
        mail.state = state
        known = self.keys.get(mail.key) if mail.key is not None else None
        if known is not None and known.live is mail:
            known.live, known.checkpoint = None, mail.checkpoint

    def nack(self, mail: Mail, delay: float) -> None:
        mail.suspect = False
        if mail.used_up:
            self.end(mail, "dead")
        elif delay:
            mail.state, mail.due = "delayed", self.now + delay
        else:
            mail.state = "ready"

    def release(self, mail: Mail) -> None:
        mail.state, mail.suspect = "ready", False
        if mail.stage == "started":
            mail.base += 1  # its number is used, and forgiven
        else:
            mail.count -= 1

    def extend(self, mail: Mail, seconds: float, checkpoint: bytes | None) -> None:
        mail.due, mail.stage = max(mail.due, self.now + seconds), "started"
        if checkpoint is not None:
            mail.checkpoint = checkpoint

    def revoke(self, key: str) -> bool:
        known = self.keys.setdefault(key, KeyRecord())
        hit, known.live, known.revoked, known.checkpoint = known.live, None, True, None
        if hit is not None:
            hit.state = "gone"
        return hit is not None

    def withdraw(self, key: str, generation: int) -> str:
        live = self.keys[key].live if key in self.keys else None
        if live is None or live.generation > generation:
            return "absent"
        if live.state == "leased":
            return "leased"
        self.end(live)
        return "withdrawn"

    def may_replay(self, mail: Mail) -> bool:
        known = self.keys.get(mail.key) if mail.key is not None else None
        return known is None or not (known.revoked or known.live is not None or known.generation > mail.generation)

    def replay(self, mail: Mail) -> None:
        mail.state, mail.base, mail.suspect = "ready", mail.count, False
        if mail.key is not None:
            self.keys[mail.key].live = mail

    def purge(self) -> int:
        live = [mail for mail in self.mail if mail.state in ("ready", "delayed", "leased")]
        for mail in live:
            self.end(mail)
        return len(live)
