"""Encrypts what managers never need to read: arguments, results and checkpoints, by AES-GCM.

A worker finds `codec` at the top level of its module, a client gets it as `codec=`. The key comes from where your secrets are; here it is in the
environment, as base64 of 32 bytes, and never in the engine.

    export TENURE_EXAMPLE_KEY=$(python -c "import base64, os; print(base64.b64encode(os.urandom(32)).decode())")
    python -m examples.encrypted

A first key encrypts, and every key that is listed after it (with commas) still decrypts: so a key is changed without losing what was written.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import tempfile
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tenure import Codec, embedded, workflow

_NONCE = 12
_ID = 4


class AesGcmCodec(Codec):
    """AES-256-GCM with a synthetic nonce: HMAC-SHA256 of what is encrypted and what it is about.

    Equal values about the same thing give equal bytes, which `Codec` asks for, and no nonce is used for two different ones.
    """

    def __init__(self, *keys: bytes) -> None:
        self._keys = {hashlib.sha256(b"id" + key).digest()[:_ID]: key for key in keys}
        self._first = next(iter(self._keys))

    def encode(self, data: bytes, about: str) -> bytes:
        key = self._keys[self._first]
        context = about.encode()
        nonce_key = hmac.digest(key, b"nonce", "sha256")
        nonce = hmac.digest(nonce_key, len(context).to_bytes(8, "big") + context + data, "sha256")[:_NONCE]
        return self._first + nonce + AESGCM(key).encrypt(nonce, data, context)

    def decode(self, data: bytes, about: str) -> bytes:
        key_id, nonce, secret = data[:_ID], data[_ID : _ID + _NONCE], data[_ID + _NONCE :]
        return AESGCM(self._keys[key_id]).decrypt(nonce, secret, about.encode())


def keys_from_environment() -> list[bytes]:
    text = os.environ.get("TENURE_EXAMPLE_KEY", "")
    return [base64.b64decode(one) for one in text.split(",") if one] or [
        hashlib.sha256(b"for the example only").digest()
    ]


codec = AesGcmCodec(*keys_from_environment())


@workflow(max_attempts=2)
def diagnose(ctx: Any, patient: str) -> dict[str, str]:
    """Fails once after a checkpoint, so that the second attempt resumes from it."""
    if ctx.resume is None:
        ctx.checkpoint({"seen": patient})
        raise RuntimeError("the first attempt ends here")
    return {"of": ctx.resume["seen"], "finding": "healthy"}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, embedded(folder, workflows=[diagnose], codec=codec) as tenure:
        print(tenure.submit(diagnose, patient="Ada Lovelace").wait())


if __name__ == "__main__":
    main()
