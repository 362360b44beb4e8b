"""Each operation of the API is a method of both clients and a command. This compares the three lists."""

from __future__ import annotations

import inspect

import click

from tenure.cli.root import COMMANDS, tenure
from tenure.client.async_client import AsyncClient
from tenure.client.client import Client
from tenure.control.messages.operations import OPERATIONS, Operation, Role

API: dict[str, tuple[str, str]] = {
    "submit": ("submit_job", "submit"),
    "submit_many": ("submit_each", "submit"),
    "cancel": ("cancel", "cancel"),
    "job": ("job", "ps"),
    "jobs": ("jobs", "ps"),
    "ended": ("ended", "result"),
    "why": ("why", "why"),
    "events": ("events", "watch"),
    "result": ("result", "result"),
    "retry": ("retry", "retry"),
    "pause_job": ("pause", "pause"),
    "resume_job": ("resume", "resume"),
    "retime_job": ("retime", "retime"),
    "move_job": ("move", "move"),
    "signal_job": ("signal", "signal"),
    "logs": ("logs", "logs"),
    "evidence": ("evidence", "evidence"),
    "output": ("output", "output"),
    "leader": ("leader", "nodes"),
    "gate": ("gate", "status"),
    "overview": ("overview", "status"),
    "nodes": ("nodes", "nodes"),
    "drain": ("drain", "drain"),
    "undrain": ("undrain", "drain"),
    "hold_name": ("hold", "hold"),
    "release_name": ("release", "hold"),
    "queues": ("queues", "queue"),
    "pause": ("pause_queue", "queue"),
    "resume": ("resume_queue", "queue"),
    "set_queue": ("set_queue", "queue"),
    "dead_letters": ("dead_letters", "dlq list"),
    "dead_letter": ("dead_letter", "dlq show"),
    "replay": ("replay", "dlq replay"),
    "discard": ("discard", "dlq discard"),
    "schedules": ("schedules", "schedule list"),
    "set_schedule": ("set_schedule", "schedule add"),
    "drop_schedule": ("drop_schedule", "schedule remove"),
    "trigger_schedule": ("trigger_schedule", "schedule trigger"),
    "create_token": ("create_token", "token create"),
    "tokens": ("tokens", "token list"),
    "revoke_token": ("revoke_token", "token revoke"),
    "workflows": ("catalogue", "workflows"),
    "thresholds": ("thresholds", "thresholds"),
}
"""Maps each operation that people may ask to its method and its command."""


def of_people() -> list[Operation]:
    return [one for one in OPERATIONS if one.role not in (Role.WORKER, Role.NODE)]


def test_every_operation_of_people_is_in_the_table_and_nothing_else_is() -> None:
    assert {one.name for one in of_people()} == set(API)


def test_every_operation_is_a_method_of_both_clients_that_sends_it() -> None:
    for operation in of_people():
        method = API[operation.name][0]
        for kind in (Client, AsyncClient):
            source = inspect.getsource(getattr(kind, method))
            assert f"{operation.request.__name__}(" in source, (kind, operation.name)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(one).parameters) for name, one in found if not name.startswith("_")}

    assert methods(Client) == methods(AsyncClient)


def test_every_operation_has_a_command() -> None:
    context = click.Context(tenure)
    for _, command in API.values():
        name, _, below = command.partition(" ")
        assert name in COMMANDS
        found = tenure.get_command(context, name)
        if below:
            assert isinstance(found, click.Group)
            assert below in found.commands, command
