"""Taking and doing work: loops, groups, the registry of workflows, their context, slots, dead letters."""

from tenure import lazy_names

TYPE_CHECKING = False  # not typing's own: a worker starts its fork server before it imports that
if TYPE_CHECKING:
    from tenure.work.context import AsyncContext as AsyncContext
    from tenure.work.context import Context as Context
    from tenure.work.context import current as current
    from tenure.work.delivery import Cause as Cause
    from tenure.work.delivery import WorkFailure as WorkFailure
    from tenure.work.delivery import WorkItem as WorkItem
    from tenure.work.delivery import WorkResult as WorkResult
    from tenure.work.group import LoopGroup as LoopGroup
    from tenure.work.group import OnLoopDeath as OnLoopDeath
    from tenure.work.group_loops import Isolation as Isolation
    from tenure.work.group_loops import Loop as Loop
    from tenure.work.loop_messages import DeadLetterPolicy as DeadLetterPolicy
    from tenure.work.loop_messages import Ending as Ending
    from tenure.work.loop_messages import OnLeaseLost as OnLeaseLost
    from tenure.work.mailbox_loop import FunctionLoop as FunctionLoop
    from tenure.work.mailbox_loop import MailboxLoop as MailboxLoop
    from tenure.work.registry import Registry as Registry
    from tenure.work.registry import Workflow as Workflow
    from tenure.work.registry import workflow as workflow
    from tenure.work.slots.claims import mailbox_for as mailbox_for
    from tenure.work.slots.settings import SlotSettings as SlotSettings
    from tenure.work.slots.supervisor import Supervisor as Supervisor

__getattr__ = lazy_names(
    __name__,
    {
        "context": "AsyncContext Context current",
        "delivery": "Cause WorkFailure WorkItem WorkResult",
        "group": "LoopGroup OnLoopDeath",
        "loop_messages": "DeadLetterPolicy Ending OnLeaseLost",
        "mailbox_loop": "FunctionLoop MailboxLoop",
        "registry": "Registry Workflow workflow",
        "group_loops": "Isolation Loop",
        "slots.claims": "mailbox_for",
        "slots.settings": "SlotSettings",
        "slots.supervisor": "Supervisor",
    },
)
