"""Servers on the loopback of a namespace, and a client that asks each of them: runs as a program.

`python asking.py FOLDER` needs a certificate and its key in FOLDER, and a name server on port 53.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

HOST = "127.0.0.1"
HTTP_PORT, TLS_1_2_PORT, TLS_1_3_PORT, ID_PORT, CLOSED_PORT = 8080, 4432, 4433, 7000, 9
SLOW_SECONDS = 0.15
"""How long the server takes to answer /slow, and an id of 13."""
CONNECTIONS, REQUESTS, QUESTIONS, BY_TCP, PINGS, IDS = 5, 4, 40, 60, 30, 20


class Handler(BaseHTTPRequestHandler):
    """Answers with as many bytes as were asked for, in chunks or not."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path == "/slow":
            time.sleep(SLOW_SECONDS)
        content = b"x" * (100_000 if self.path == "/large" else 100)
        self.send_response(200)
        if self.path == "/chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))
        else:
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve(port: int, context: ssl.SSLContext | None = None) -> None:
    """A server of HTTP in the background."""
    server = ThreadingHTTPServer((HOST, port), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()


def serve_ids() -> None:
    """A server that sends the first four bytes of each datagram back, with others behind them."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((HOST, ID_PORT))

    def answer() -> None:
        while True:
            message, client = server.recvfrom(100)
            if message == struct.pack(">I", 13) + b"ask":
                time.sleep(SLOW_SECONDS)
            server.sendto(message[:4] + b"answer", client)

    Thread(target=answer, daemon=True).start()


def question(number: int, name: str) -> bytes:
    """A query for the address of a name."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    head = struct.pack(">HHHHHH", number, 0x100, 1, 0, 0, 0)
    return head + labels + b"\0" + struct.pack(">HH", 1, 1)


def ping(number: int) -> bytes:
    """An echo request."""
    words = (0x0800, 77, number)
    total = sum(words)
    check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return struct.pack(">HHHH", words[0], check, *words[1:])


def ask_all(folder: Path) -> None:
    """Ask each server."""
    for _ in range(CONNECTIONS):
        plain = http.client.HTTPConnection(HOST, HTTP_PORT)
        for path in ("/", "/large", "/chunks", "/slow")[:REQUESTS]:
            plain.request("GET", path)
            plain.getresponse().read()
        plain.close()
    context = ssl.create_default_context(cafile=folder / "certificate.pem")
    context.check_hostname = False
    for port in (TLS_1_2_PORT, TLS_1_3_PORT):
        for _ in range(CONNECTIONS):
            secret = http.client.HTTPSConnection(HOST, port, context=context)
            secret.request("GET", "/")
            secret.getresponse().read()
            secret.close()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect((HOST, 53))
    for number in range(QUESTIONS):
        datagrams.send(question(number, f"N{number}.example.com"))
        datagrams.recv(2000)
    stream = socket.create_connection((HOST, 53))
    for number in range(BY_TCP):
        message = question(1000 + number, f"t{number}.example.com")
        whole = struct.pack(">H", len(message)) + message
        stream.sendall(whole[:1])
        stream.sendall(whole[1:])
        stream.recv(2000)
    stream.close()
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    raw.connect((HOST, 0))
    for number in range(PINGS):
        raw.send(ping(number))
        raw.recv(2000)
    ids = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ids.connect((HOST, ID_PORT))
    for number in range(IDS):
        ids.send(struct.pack(">I", number) + b"ask")
        ids.recv(100)
    refused = socket.socket()
    assert refused.connect_ex((HOST, CLOSED_PORT)) != 0


def main() -> None:
    """Serve, and ask."""
    folder = Path(sys.argv[1])
    serve(HTTP_PORT)
    for port, version in (
        (TLS_1_2_PORT, ssl.TLSVersion.TLSv1_2),
        (TLS_1_3_PORT, ssl.TLSVersion.TLSv1_3),
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        context.minimum_version = context.maximum_version = version
        serve(port, context)
    serve_ids()
    ask_all(folder)


if __name__ == "__main__":
    main()
