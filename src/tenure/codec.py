"""The hook with which people encrypt what managers never need to read: the arguments, results, checkpoints and steps of their workflows, and the
payloads of signals.

Clients and workers hold a codec; managers, gates and engines pass on what it made. A value that was encoded is the JSON object
`{"tenure.codec": "BASE64"}`, a checkpoint is bytes with a mark before them. Whoever holds a codec accepts nothing that was not encoded: so a result that
somebody wrote into the engine is refused.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from tenure.errors import CodecError

KEY = "tenure.codec"
_MARK = b"\x00tenure.codec\x00"


class Codec(ABC):
    """Encodes and decodes bytes. One at the top level of a module that a worker serves is found there; clients get theirs as `codec=`.

    `about` says what the bytes are, as `arguments encode`, `result JOB/WORKFLOW`, `checkpoint JOB/WORKFLOW`, `step JOB/WORKFLOW/KIND/NAME/KEY` or `signal JOB/NAME/ID`. Authenticate it, so that nobody can put one
    value in the place of another. The same bytes about the same thing must be encoded alike: a submission that is repeated under one id is compared with
    the first, and a checkpoint that is saved again is no progress.
    """

    @abstractmethod
    def encode(self, data: bytes, about: str) -> bytes: ...

    @abstractmethod
    def decode(self, data: bytes, about: str) -> bytes:
        """Raises anything for bytes that it did not make, or that are about something else."""


def about_signal(job_id: str, name: str, signal_id: str) -> str:
    """Returns what the payload of a signal is about. The id is part of it, so that no payload counts for a second signal."""
    return f"signal {job_id}/{name}/{signal_id}"


def sealed(codec: Codec | None, data: bytes, about: str) -> bytes:
    """Returns JSON as it travels: encoded, where there is a codec."""
    if codec is None:
        return data
    return msgspec.json.encode({KEY: base64.b64encode(codec.encode(data, about)).decode()})


def sealed_value(codec: Codec | None, value: Any, about: str) -> Any:
    """Returns a value of plain JSON types as it travels. One that was encoded before stays as it is."""
    if codec is None or is_sealed(value):
        return value
    return msgspec.json.decode(sealed(codec, msgspec.json.encode(value), about))


def is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(KEY), str)


def opened_value(codec: Codec | None, value: Any, about: str) -> Any:
    """Returns the value that was encoded. Raises `CodecError` where it cannot be decoded, and where only one of the two sides has a codec."""
    if not is_sealed(value):
        if codec is not None:
            raise CodecError(f"the {about} is not encoded, and a codec is set", remedy="Give both sides the same codec")
        return value
    if codec is None:
        raise CodecError(f"the {about} is encoded, and no codec is set", remedy="Give the codec that encoded it")
    try:
        return msgspec.json.decode(_decode(codec, base64.b64decode(value[KEY], validate=True), about))
    except (ValueError, RecursionError) as error:  # of base64 and of JSON
        raise CodecError(f"the {about} cannot be decoded: {error}") from error


def sealed_bytes(codec: Codec | None, data: bytes | None, about: str) -> bytes | None:
    """Returns a checkpoint as it is kept."""
    return data if codec is None or data is None else _MARK + codec.encode(data, about)


def opened_bytes(codec: Codec | None, data: bytes | None, about: str) -> bytes | None:
    """Returns a checkpoint as it was saved. Raises `CodecError` as `opened_value` does."""
    if data is None:
        return None
    if not data.startswith(_MARK):
        if codec is not None:
            raise CodecError(
                f"the {about} is not encoded, and a codec is set", remedy="Give all workers the same codec"
            )
        return data
    if codec is None:
        raise CodecError(f"the {about} is encoded, and no codec is set", remedy="Give the codec that encoded it")
    return _decode(codec, data.removeprefix(_MARK), about)


def _decode(codec: Codec, data: bytes, about: str) -> bytes:
    try:
        return codec.decode(data, about)
    except Exception as error:
        # What a codec raises may quote what it was given, and errors are shown to managers.
        raise CodecError(
            f"the codec refuses the {about}: {type(error).__name__}",
            remedy="It was encoded with another key, or changed on its way",
        ) from error
