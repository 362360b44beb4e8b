"""Taking and doing work: loops, groups, the registry of workflows, their context, slots, dead letters."""

from tenure.work.dead_letter import DeadLetterPolicy
from tenure.work.function_loop import FunctionLoop
from tenure.work.group import Isolation, Loop, LoopGroup, OnLoopDeath
from tenure.work.mailbox_loop import Ending, MailboxLoop, OnLeaseLost

__all__ = [
    "DeadLetterPolicy",
    "Ending",
    "FunctionLoop",
    "Isolation",
    "Loop",
    "LoopGroup",
    "MailboxLoop",
    "OnLeaseLost",
    "OnLoopDeath",
]
