"""Signs the outcomes of attempts, so that whoever can write to the engine cannot forge one (decision 0610).

The supervisor of a worker signs the exact bytes of a reply together with the attempt *as it knows it from its claim*: a slot that names another job
in its reply gets a signature that does not fit. A leader that has keys believes what is signed, and nothing else. The signature is the last field of
the reply, so a leader of another release, which knows other fields, checks the same bytes.

This file knows neither engines nor clocks.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tenure.errors import ConfigurationError
from tenure.work.delivery import Cause, WorkHead, WorkResult

LEAST_KEY_CHARS = 32
MOST_KEY_CHARS = 1_024
MOST_KEYS = 100_000
_ABOUT = "tenure result 1"
_BEFORE, _AFTER = b',"signature":"', b'"}'
_HEX_CHARS = 64
_TAIL_BYTES = len(_BEFORE) + _HEX_CHARS + len(_AFTER)
_encode = msgspec.json.Encoder().encode


class ResultKey(NamedTuple):
    """One line of a file of keys."""

    secret: bytes
    worker: str = ""
    """The only worker that it is of; empty: all workers share it."""


class ClaimedAttempt(NamedTuple):
    """Names an attempt as the claim of its message does."""

    job_id: str
    workflow_id: str
    attempt: int
    fence: tuple[int, int]

    @classmethod
    def of(cls, head: WorkHead, fence: tuple[int, int]) -> ClaimedAttempt:
        return cls(head.job_id, head.workflow_id, head.attempt, (fence[0], fence[1]))

    @classmethod
    def told_by(cls, result: WorkResult) -> ClaimedAttempt:
        return cls(result.job_id, result.workflow_id, result.attempt, (result.fence[0], result.fence[1]))


class ResultKeys:
    """The keys of a manager, or of a worker. Several may count at once, so that keys can be rotated: the first one that fits signs."""

    def __init__(self, keys: Sequence[ResultKey]) -> None:
        if not keys:
            raise ConfigurationError("there are no keys for results", remedy="Write one: openssl rand -hex 32 > FILE")
        self._shared = tuple(one.secret for one in keys if not one.worker)
        self._own: dict[str, tuple[bytes, ...]] = {}
        for one in keys:
            if one.worker:
                self._own[one.worker] = (*self._own.get(one.worker, ()), one.secret)

    def of(self, worker: str) -> tuple[bytes, ...]:
        """Returns the keys with which this worker may sign. Where it has keys of its own, the shared ones do not count for it: others have them, too."""
        return self._own.get(worker) or self._shared

    def __repr__(self) -> str:
        return f"ResultKeys({len(self._shared)} shared, of {len(self._own)} workers)"


def parse_result_keys(text: str) -> ResultKeys:
    """Reads keys, one a line: `KEY`, or `NAME KEY` for one worker. Lines that begin with # are left out. Raises `ConfigurationError`."""
    keys: list[ResultKey] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) > 2:
            raise _wrong(number, f"it has {len(words)} words")
        if not LEAST_KEY_CHARS <= len(words[-1]) <= MOST_KEY_CHARS or not words[-1].isascii():
            raise _wrong(number, f"a key has {LEAST_KEY_CHARS} to {MOST_KEY_CHARS:,} ASCII characters")
        if len(keys) >= MOST_KEYS:
            raise _wrong(number, f"a file has {MOST_KEYS:,} keys at most")
        keys.append(ResultKey(words[-1].encode(), words[0] if len(words) == 2 else ""))
    return ResultKeys(keys)


def _wrong(number: int, why: str) -> ConfigurationError:
    # The line itself is not shown: it is a secret.
    return ConfigurationError(
        f"line {number} of the keys for results is wrong: {why}",
        remedy="Write KEY, or WORKER KEY, on each line; openssl rand -hex 32 makes a key",
    )


def read_result_keys(path: str) -> ResultKeys | None:
    """Reads a file of keys; None where no file is named. It may be a pipe (`/dev/fd/3`), which nobody can read again. Raises `ConfigurationError`."""
    if not path:
        return None
    try:
        text = Path(path).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the keys for results cannot be read from {path}: {error}", remedy="Correct --result-key-file"
        ) from error
    return parse_result_keys(text)


class ResultSigner:
    """Signs for one worker."""

    def __init__(self, keys: ResultKeys, worker: str) -> None:
        """Raises `ConfigurationError` where the keys have none for this worker."""
        found = keys.of(worker)
        if not found:
            raise ConfigurationError(
                f"the keys for results have none for worker {worker!r}",
                remedy=f"Add a line `{worker} KEY` to the file of this worker and of the managers",
            )
        self._secret, self._worker = found[0], worker

    def sign(self, reply: bytes, claim: ClaimedAttempt) -> bytes:
        """Returns an encoded reply of this worker with its signature. What is no object cannot be signed, and no leader could read it."""
        if not reply.endswith(b"}"):
            return reply
        return reply[:-1] + _BEFORE + _signature(self._secret, claim, self._worker, reply) + _AFTER

    def signed(self, result: WorkResult, claim: ClaimedAttempt) -> WorkResult:
        """Returns the result with its signature. Of another worker it can be only the word that it died."""
        signer = msgspec.UNSET if result.worker == self._worker else self._worker
        plain = msgspec.structs.replace(result, signer=signer, signature=msgspec.UNSET)
        signature = _signature(self._secret, claim, result.worker, _encode(plain))
        return msgspec.structs.replace(plain, signature=signature.decode())


def signer_for(keys: ResultKeys | None, worker: str) -> ResultSigner | None:
    return None if keys is None else ResultSigner(keys, worker)


def why_unsigned(keys: ResultKeys, encoded: bytes, result: WorkResult) -> str:
    """Returns why a reply, which was decoded from these bytes, is not to be believed; empty when its signature fits."""
    tail = encoded[-_TAIL_BYTES:]
    if not (tail.startswith(_BEFORE) and tail.endswith(_AFTER)):
        return "it is not signed"
    signer = result.worker if result.signer is msgspec.UNSET else result.signer
    secrets = keys.of(signer)
    if not secrets:
        return f"there is no key of worker {signer!r}"
    reply, given = encoded[:-_TAIL_BYTES] + b"}", tail[len(_BEFORE) : -len(_AFTER)]
    claim = ClaimedAttempt.told_by(result)
    if not any(hmac.compare_digest(given, _signature(one, claim, result.worker, reply)) for one in secrets):
        return "its signature is wrong"
    if signer != result.worker and not _says_only_that_it_died(result):
        return f"{signer!r} signed it, and may say only that {result.worker!r} died"
    return ""


def _says_only_that_it_died(result: WorkResult) -> bool:
    failure = result.failure
    return (
        failure is not None
        and failure.cause is Cause.WORKER_DIED
        and not failure.final
        and not failure.waits_on
        and result.suspended is None
        and not result.exposed
    )


def _signature(secret: bytes, claim: ClaimedAttempt, worker: str, reply: bytes) -> bytes:
    about = _encode((_ABOUT, *claim, worker))
    return hmac.digest(secret, about + b"\n" + reply, "sha256").hex().encode()


def digest_of(stored: bytes) -> str:
    """Names the bytes of a result that is too large for its reply. The reply has this digest, and the signature covers the reply."""
    return hashlib.sha256(stored).hexdigest()
