"""Tenure in the same contest, by the same rules: a driver that submits, and one worker process.

Two workers: `loop` is FunctionLoop as it is, one message after the other, each with a full lease and beats. `batches` is the loop one writes
for work shorter than a claim: a hundred provisional claims at a time, and one acknowledgement for all of them.
"""

import logging
import sys

from driver import CONFIG, URL, Peer, answer_ping, itself, mark, serve

from tenure.engines import Engine, Outgoing
from tenure.work.mailbox_loop import FunctionLoop

logging.disable(logging.WARNING)  # what the engines say of the server's settings is known
BATCH = 100
CLAIM_S = 30.0


def do(body):
    if body < 0:
        mark()
    else:
        answer_ping(body)


def work():
    with Engine.open(URL) as engine:
        mailbox = engine.mailbox("peers", int)
        if CONFIG == "loop":
            FunctionLoop(mailbox, lambda message, _: do(message.body)).run()
        while True:
            messages = mailbox.receive(BATCH, CLAIM_S, 30, provisional=True)
            for message in messages:
                do(message.body)
            if messages:
                mailbox.acknowledge_many(messages)


class Tenure(Peer):
    settings = {
        "loop": "FunctionLoop: one by one, a lease and an acknowledgement each",
        "batches": f"{BATCH} provisional claims at a time, one acknowledgement for all",
    }[CONFIG]

    def __init__(self):
        self.engine = Engine.open(URL)
        self.mailbox = self.engine.mailbox("peers", int)

    def worker(self):
        return itself("peer_tenure")

    def reset(self):
        self.mailbox.purge()

    def fill(self, count):
        for begun in range(0, count, 500):
            self.mailbox.send_many([Outgoing(-1)] * min(500, count - begun))

    def ping(self, number):
        self.mailbox.send(number)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        work()
    else:
        serve(Tenure())
