"""A web server on this machine that can misbehave in every way the tests need."""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Server:
    """Serves `files` by name. Each request for a name uses up one of its `faults`; with none left, the answer is as it should be."""

    files: dict[str, bytes]
    faults: dict[str, list["Fault"]] = field(default_factory=lambda: defaultdict(list))
    requests: list[tuple[str, int]] = field(default_factory=list)
    """The names asked for, each with the first byte asked for."""
    sent: int = 0
    """How many bytes of content were sent in all."""
    url: str = ""
    closing: threading.Event = field(default_factory=threading.Event)

    def starts(self, name: str) -> list[int]:
        return [start for asked, start in self.requests if asked == name]


class Handler(BaseHTTPRequestHandler):
    """One request to the `Server` that `host` is set to."""

    host: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        start = int((re.findall(r"bytes=(\d+)-", self.headers.get("Range", "")) or ["0"])[0])
        self.host.requests.append((name, start))
        faults = self.host.faults[name]
        (faults.pop(0) if faults else answer)(self, self.host.files.get(name), start)

    def head(self, status: int, length: int | None, **headers: str) -> None:
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()

    def body(self, content: bytes, *, pause: float = 0.0, piece: int = 1 << 14) -> None:
        for first in range(0, len(content), piece):
            self.wfile.write(content[first : first + piece])
            self.wfile.flush()
            self.host.sent += len(content[first : first + piece])
            time.sleep(pause)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its base class says so)
        pass


Fault = Callable[[Handler, bytes | None, int], None]


def answer(handler: Handler, content: bytes | None, start: int, *, pause: float = 0.0) -> None:
    """As it should be, the part of a file included."""
    if content is None:
        handler.head(404, 0)
    elif start >= len(content) > 0 and start:
        handler.head(416, 0, Content_Range=f"bytes */{len(content)}")
    else:
        ranged = (
            {"Content_Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        )
        handler.head(206 if start else 200, len(content) - start, **ranged)
        handler.body(content[start:], pause=pause)


def slow(pause: float) -> Fault:
    """Right, with a pause after every 16 KiB."""
    return lambda handler, content, start: answer(handler, content, start, pause=pause)


def status(code: int) -> Fault:
    """Nothing but this status."""
    return lambda handler, content, start: handler.head(code, 0)


def cut_after(n: int) -> Fault:
    """Promises the whole, honours the range, sends `n` bytes and hangs up."""

    def fault(handler: Handler, content: bytes | None, start: int) -> None:
        assert content is not None
        ranged = (
            {"Content_Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        )
        handler.head(206 if start else 200, len(content) - start, **ranged)
        handler.body(content[start : start + n])
        handler.close_connection = True

    return fault


def whole(handler: Handler, content: bytes | None, start: int) -> None:
    """Ignores the range."""
    answer(handler, content, 0)


def shifted(handler: Handler, content: bytes | None, start: int) -> None:
    """Answers with another range than was asked for."""
    assert content is not None
    handler.head(206, len(content) - 1, Content_Range=f"bytes 1-{len(content) - 1}/{len(content)}")
    handler.body(content[1:])


def unmeasured(handler: Handler, content: bytes | None, start: int) -> None:
    """Right, without saying how long it is."""
    assert content is not None
    handler.head(200, None)
    handler.body(content)
    handler.close_connection = True


def dropped(handler: Handler, content: bytes | None, start: int) -> None:
    """Hangs up without a word."""
    handler.close_connection = True


def hang(handler: Handler, content: bytes | None, start: int) -> None:
    """Says nothing until the server closes."""
    handler.host.closing.wait(30)
    handler.close_connection = True


def hang_after(n: int) -> Fault:
    """Sends `n` bytes and then nothing."""

    def fault(handler: Handler, content: bytes | None, start: int) -> None:
        assert content is not None
        handler.head(200, len(content))
        handler.body(content[:n])
        hang(handler, content, start)

    return fault


def instead(content: bytes) -> Fault:
    """Another content."""
    return lambda handler, _, start: answer(handler, content, start)


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the tests."""


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Server]:
    """A server for the time of a `with`."""
    host = Server(files)
    handler = type("Bound", (Handler,), {"host": host})
    with _Quiet(("127.0.0.1", 0), handler) as server:
        host.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        try:
            yield host
        finally:
            host.closing.set()
            server.shutdown()
            thread.join()
