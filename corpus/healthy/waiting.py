"""Work that waits for somebody else, who is slow and alive."""

from __future__ import annotations

import fcntl
import http.client
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from corpus.case import healthy
from corpus.job import Job
from corpus.servers import answer, serve, stream


@healthy("honest polling for an export that takes its time", short=True)
def polls_an_export(job: Job) -> None:
    ready_at = time.monotonic() + 9
    for _ in job.polling(0.5, 30, "the export"):
        if time.monotonic() > ready_at:
            break


@healthy("a poll inside a loop over items")
def polls_per_item(job: Job) -> None:
    for _ in job.track(range(3), 3):
        ready_at = time.monotonic() + 2
        for _ in job.polling(0.4, 20, "one item"):
            if time.monotonic() > ready_at:
                break


@healthy("it sleeps and looks, and counts nothing")
def sleeps_between_looks(job: Job) -> None:
    for _ in range(8):
        job.sleep(1.0)
        job.beat()


@healthy("a model that thinks for longer than the stall threshold, as declared", short=True)
def model_thinks(job: Job) -> None:
    def think(connection: socket.socket) -> None:
        connection.recv(65536)
        time.sleep(4.5)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

    host, port = serve(think)
    for turn in range(2):
        with job.silence(10, "model call"):
            urllib.request.urlopen(f"http://{host}:{port}/").read()
        job.beat(turn + 1, 2)


@healthy("a provider at a tenth of its speed: a token now and then", short=True)
def slow_tokens(job: Job) -> None:
    host, port = serve(lambda c: stream(c, b"data: token\n\n", 0.7, 12))
    tokens = 0
    for line in urllib.request.urlopen(f"http://{host}:{port}/"):
        if line.startswith(b"data:"):
            tokens += 1
            job.beat(tokens)


@healthy("a stream with keep-alives between its few pieces of content")
def keepalives_and_content(job: Job) -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for _ in range(6):
            for _ in range(4):
                connection.sendall(b": ping\n\n")
                time.sleep(0.3)
            connection.sendall(b"data: piece\n\n")
        connection.close()

    host, port = serve(behave)
    pieces = 0
    for line in urllib.request.urlopen(f"http://{host}:{port}/"):
        if line.startswith(b"data:"):
            pieces += 1
            job.beat(pieces)


@healthy("many calls, each of them slow", short=True)
def slow_calls(job: Job) -> None:
    def slow(connection: socket.socket) -> None:
        time.sleep(1.3)
        answer(connection, b"ok")

    host, port = serve(slow)
    for _ in job.track(range(6), 6):
        urllib.request.urlopen(f"http://{host}:{port}/").read()


@healthy("a provider that says 'try again in two seconds', which the job does")
def retry_after(job: Job) -> None:
    tries = iter(range(100))

    def behave(connection: socket.socket) -> None:
        if next(tries) < 3:
            answer(connection, b"", "429 Too Many Requests", "Retry-After: 2\r\n")
        else:
            answer(connection, b"ok")

    host, port = serve(behave)
    while True:
        client = http.client.HTTPConnection(host, port)
        client.request("GET", "/")
        if client.getresponse().status == 200:
            return
        with job.silence(4, "the provider asked for a pause"):
            time.sleep(2)
        job.beat()


@healthy("connections that break, and are made again, while the work advances")
def broken_connections(job: Job) -> None:
    count = iter(range(1000))

    def behave(connection: socket.socket) -> None:
        if next(count) % 2:
            connection.close()
        else:
            answer(connection, b"ok")

    host, port = serve(behave)
    done = 0
    while done < 7:
        time.sleep(0.5)
        try:
            urllib.request.urlopen(f"http://{host}:{port}/").read()
        except (OSError, http.client.HTTPException):
            job.beat(note="again")
            continue
        done += 1
        job.beat(done, 7)


@healthy("a large download over a thin line", short=True)
def slow_download(job: Job) -> None:
    def trickle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n")
        for _ in range(90):
            connection.sendall(b"x" * 1000)
            time.sleep(0.1)

    host, port = serve(trickle)
    with urllib.request.urlopen(f"http://{host}:{port}/") as body:
        got = 0
        while piece := body.read(1000):
            got += len(piece)
            job.beat(got, 90_000)


@healthy("an upload to a receiver that reads slowly")
def slow_upload(job: Job) -> None:
    def read_slowly(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        while connection.recv(20_000):
            time.sleep(0.05)

    with socket.create_connection(serve(read_slowly)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        for part in range(100):
            connection.sendall(b"x" * 20_000)
            job.beat(part + 1, 100)


@healthy("a long poll, declared")
def long_poll(job: Job) -> None:
    def hold(connection: socket.socket) -> None:
        time.sleep(3.5)
        answer(connection, b"event")

    host, port = serve(hold)
    for turn in range(2):
        with job.silence(8, "long poll"):
            urllib.request.urlopen(f"http://{host}:{port}/").read()
        job.beat(turn + 1, 2)


@healthy("a program that reports its steps, slowly", short=True)
def slow_program(job: Job) -> None:
    job.program("sh", "-c", "for n in 1 2 3 4 5 6 7; do sleep 1.2; echo step $n; done")


@healthy("a quiet program, declared")
def quiet_program_declared(job: Job) -> None:
    with job.silence(9, "compiles"):
        subprocess.run(["sleep", "5"], check=True)
    job.beat()


@healthy("a queue that is empty for a while; it looks with a timeout")
def patient_consumer(job: Job) -> None:
    items: queue.Queue[int] = queue.Queue()

    def produce() -> None:
        for number in range(5):
            time.sleep(1.4)
            items.put(number)

    threading.Thread(target=produce, daemon=True).start()
    done = 0
    while done < 5:
        try:
            items.get(timeout=0.5)
        except queue.Empty:
            job.beat()
            continue
        done += 1
        job.beat(done, 5)


@healthy("a lock that a slow neighbour holds, declared")
def waits_for_a_lock(job: Job) -> None:
    path = tempfile.mkstemp()[1]
    code = f"import fcntl, time; f = open({path!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(4.5)"
    neighbour = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    (neighbour.stdout or sys.stdin).readline()
    with job.silence(10, "waits for its neighbour"), Path(path).open("w") as wanted:
        fcntl.flock(wanted, fcntl.LOCK_EX)
    neighbour.wait()
    job.beat()


@healthy("it waits until a file has been written, and says that it looks")
def watches_a_file(job: Job) -> None:
    folder = Path(tempfile.mkdtemp())
    writer = subprocess.Popen(["sh", "-c", f"sleep 6; touch {folder}/done"])
    for _ in job.polling(0.3, 20, "a file"):
        if (folder / "done").exists():
            break
    writer.wait()


@healthy("an agent that calls the same tool, and gets new results", short=True)
def same_tool_new_results(job: Job) -> None:
    for turn in range(9):
        time.sleep(1.0)
        job.checkpoint({"turn": turn, "result": os.urandom(8).hex()})


@healthy("a model's answer after three errors of its provider")
def provider_recovers(job: Job) -> None:
    tries = iter(range(100))
    host, port = serve(lambda c: answer(c, b"ok", "200 OK" if next(tries) > 2 else "503 Service Unavailable"))
    for turn in range(4):
        while True:
            client = http.client.HTTPConnection(host, port)
            client.request("GET", "/")
            if client.getresponse().status == 200:
                break
            job.beat(note="503")
            time.sleep(0.8)
        time.sleep(0.8)
        job.beat(turn + 1, 4)
