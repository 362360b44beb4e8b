"""Somebody else does not answer, or answers for ever."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request

from corpus.case import hang
from corpus.job import Job
from corpus.servers import answer, serve, silent, stream


@hang("a socket without a timeout, and a server that never answers", "receives_without_timeout", short=True)
def socket_without_timeout(job: Job) -> None:
    with socket.create_connection(serve(silent)) as connection:
        connection.sendall(b"hello\n")

        def receives_without_timeout() -> bytes:
            return connection.recv(1024)

        receives_without_timeout()


@hang("the machine at the other end froze: the connection stands, nobody is there", "reads_from_the_frozen_peer")
def half_open_connection(job: Job) -> None:
    code = "import socket\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\nc, _ = s.accept()\nc.recv(9)\n"
    peer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    port = int((peer.stdout or sys.stdin).readline())
    connection = socket.create_connection(("127.0.0.1", port))
    peer.send_signal(signal.SIGSTOP)
    connection.sendall(b"x")

    def reads_from_the_frozen_peer() -> bytes:
        return connection.recv(1024)

    reads_from_the_frozen_peer()


@hang("the other end accepts no more connections: connect() waits", "connects_to_a_full_backlog")
def backlog_full(job: Job) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    held = []

    def connects_to_a_full_backlog() -> None:
        for _ in range(8):
            held.append(socket.create_connection(listener.getsockname()))

    connects_to_a_full_backlog()


@hang("headers that trickle in, one byte at a time, for ever", "reads_the_headers")
def slow_headers(job: Job) -> None:
    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Filler: ")
        while True:
            connection.sendall(b"x")
            time.sleep(0.5)

    client = http.client.HTTPConnection(*serve(trickle))
    client.request("GET", "/")

    def reads_the_headers() -> None:
        client.getresponse()

    reads_the_headers()


@hang("each redirect leads to another one", "follows_redirects_for_ever", short=True)
def infinite_redirect(job: Job) -> None:
    host, port = serve(lambda c: answer(c, b"", "302 Found", "Location: /again\r\n"))

    def follows_redirects_for_ever() -> None:
        path = "/"
        while path:
            client = http.client.HTTPConnection(host, port)
            client.request("GET", path)
            path = client.getresponse().getheader("Location") or ""
            time.sleep(0.02)

    follows_redirects_for_ever()


@hang("an event stream that sends keep-alives and no content", "reads_events", short=True)
def keepalive_without_content(job: Job) -> None:
    host, port = serve(lambda c: stream(c, b": ping\n\n", 0.2))

    def reads_events() -> None:
        for line in urllib.request.urlopen(f"http://{host}:{port}/"):
            if line.startswith(b"data:"):
                job.beat()

    reads_events()


@hang("a chunked answer whose last chunk never comes", "reads_the_last_chunk")
def chunks_without_end(job: Job) -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        time.sleep(600)

    host, port = serve(behave)

    def reads_the_last_chunk() -> bytes:
        return bytes(urllib.request.urlopen(f"http://{host}:{port}/").read())

    reads_the_last_chunk()


@hang("a datagram was lost, as a name server's answer is, and nobody asks again", "waits_for_the_datagram")
def lost_datagram(job: Job) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind(("127.0.0.1", 0))
        resolver.sendto(b"question", ("127.0.0.1", 9))

        def waits_for_the_datagram() -> None:
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    resolver.recvfrom(512)

        waits_for_the_datagram()


@hang("a TLS handshake with a server that says nothing", "shakes_hands")
def tls_handshake(job: Job) -> None:
    context = ssl.create_default_context()
    connection = socket.create_connection(serve(silent))

    def shakes_hands() -> None:
        context.wrap_socket(connection, server_hostname="localhost")

    shakes_hands()


@hang("sending to a receiver that does not read", "sends_to_a_deaf_receiver")
def deaf_receiver(job: Job) -> None:
    connection = socket.create_connection(serve(lambda c: time.sleep(600)))

    def sends_to_a_deaf_receiver() -> None:
        while True:
            connection.sendall(b"x" * 1_000_000)

    sends_to_a_deaf_receiver()


@hang("a refused connection, tried again for ever", "retries_for_ever", short=True)
def retry_storm(job: Job) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = unused.getsockname()

    def retries_for_ever() -> None:
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(address)
            time.sleep(0.05)

    retries_for_ever()


@hang("a declared wait for a model, which outlasts its bound", "waits_for_the_model", threshold_s=4.5)
def overrun_silence(job: Job) -> None:
    with socket.create_connection(serve(silent)) as connection:

        def waits_for_the_model() -> None:
            connection.recv(1024)

        with job.silence(1.5, "model call"):
            waits_for_the_model()
