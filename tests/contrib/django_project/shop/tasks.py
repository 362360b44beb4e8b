"""Tasks as Django's own documentation writes them; nothing in here knows Tenure, but for the one that beats."""

from django_tasks import task

import tenure


class OutOfStock(Exception):
    pass


@task
def greet(name, excited=False):
    """Greets a customer."""
    return f"Hello {name}{'!' if excited else ''}"


@task(queue_name="mail", priority=5, takes_context=True)
def remind(context, name):
    return {"name": name, "attempt": context.attempt, "id": context.task_result.id}


@task
async def count_later(to):
    return to


@task
def nightly(full=False):
    return "all" if full else "new"


@task
def sell(what):
    tenure.current().beat()
    raise OutOfStock(what)
