"""Taking and doing work: loops, groups, the registry of workflows, their context, slots, dead letters."""

from tenure.work.function_loop import FunctionLoop
from tenure.work.group import Isolation, Loop, LoopGroup, OnLoopDeath
from tenure.work.mailbox_loop import DeadLetterRule, Ending, MailboxLoop, OnLeaseLost

__all__ = [
    "DeadLetterRule",
    "Ending",
    "FunctionLoop",
    "Isolation",
    "Loop",
    "LoopGroup",
    "MailboxLoop",
    "OnLeaseLost",
    "OnLoopDeath",
]
