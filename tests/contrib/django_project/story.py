"""What a view does, told as JSON: calls that commit, calls that do not, results."""

import json
from datetime import timedelta

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.utils import timezone  # noqa: E402
from django_tasks import TaskResultStatus  # noqa: E402
from django_tasks.exceptions import TaskResultDoesNotExist  # noqa: E402
from examples.real.signup_mail import sign_up  # noqa: E402
from shop.models import Customer  # noqa: E402
from shop.tasks import count_later, greet, remind, sell  # noqa: E402

from tenure import JobFailed  # noqa: E402
from tenure.contrib.django.admin import JobLinks  # noqa: E402
from tenure.contrib.django.jobs import submit_on_commit  # noqa: E402


def ended(result):
    backend = result.task.get_backend()
    try:
        backend.client.get(result.id).wait(180)
    except JobFailed as error:
        told["said"] = str(error)
    result.refresh()
    return result


told = {}
call_command("migrate", verbosity=0)
told["mail"] = sign_up("ada", "ada@example.org")
with connection.schema_editor() as editor:
    editor.create_model(Customer)

told["greeted"] = ended(greet.enqueue("Ada", excited=True)).return_value
reminder = ended(remind.enqueue("Ada"))
told["reminded"], told["reminder"] = reminder.return_value, reminder.id
told["counted"] = ended(count_later.enqueue(3)).return_value
told["later"] = str(greet.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("Bo").status)

failed = ended(sell.using().enqueue("socks"))
told["failed"] = failed.status == TaskResultStatus.FAILED
told["error"] = failed.errors[0].exception_class_path
told["trace"] = "raise OutOfStock(what)" in failed.errors[0].traceback

for kind, task in (("on commit", greet), ("in the transaction", greet.using(backend="in_transaction"))):
    with transaction.atomic():
        kept = task.enqueue("kept")
        Customer.objects.create(name="kept", job_id=kept.id)
    lost = None
    try:
        with transaction.atomic():
            lost = task.enqueue("lost")
            Customer.objects.create(name="lost", job_id=lost.id)
            raise LookupError
    except LookupError:
        pass
    told[kind] = [kept.id]
    try:
        lost.refresh()
        told[kind].append("exists")
    except TaskResultDoesNotExist:
        told[kind].append("does not exist")

with transaction.atomic():
    told["workflow"] = submit_on_commit("shop.tasks.greet", {"args": ["Cy"], "kwargs": {}}, queue="default")
told["link"] = JobLinks().tenure_job(Customer(job_id="a job/1"))
told["no link"] = JobLinks().tenure_job(Customer())
print(json.dumps(told))
