"""The two bases of everything on the control plane. A request's tag is its path: `Submit` is `POST /v1/submit`."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a node may be asked. Each may be sent again: a lost answer costs a retry and nothing else."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a node answers."""


def path_of(request: Request) -> str:
    return f"/v1/{request.__struct_config__.tag}"
