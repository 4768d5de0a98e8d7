"""A web server on this machine that can misbehave."""

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
    """Serves `files` by name; each request for a name first uses up one of its `faults`."""

    files: dict[str, bytes]
    faults: dict[str, list["Fault"]] = field(default_factory=lambda: defaultdict(list))
    requests: list[str] = field(default_factory=list)
    sent: int = 0
    """The number of bytes of content sent."""
    url: str = ""
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")


class Handler(BaseHTTPRequestHandler):
    """One request to the `Server` in the class attribute `host`."""

    host: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.host.requests.append(name)
        faults = self.host.faults[name]
        (faults.pop(0) if faults else answer)(self, self.host.files.get(name))

    def head(self, status: int, length: int | None) -> None:
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def body(self, content: bytes, *, pause: float = 0.0, piece: int = 1 << 14) -> None:
        for first in range(0, len(content), piece):
            self.wfile.write(content[first : first + piece])
            self.wfile.flush()
            self.host.sent += len(content[first : first + piece])
            time.sleep(pause)

    def log_message(self, *_: Any) -> None:
        pass


Fault = Callable[[Handler, bytes | None], None]


def answer(handler: Handler, content: bytes | None, *, pause: float = 0.0) -> None:
    """The right answer."""
    if content is None:
        handler.head(404, 0)
    else:
        handler.head(200, len(content))
        handler.body(content, pause=pause)


def slow(pause: float) -> Fault:
    """Right, with a pause after every 16 KiB."""
    return lambda handler, content: answer(handler, content, pause=pause)


def status(code: int) -> Fault:
    """Nothing but this status."""
    return lambda handler, _: handler.head(code, 0)


def cut_after(n: int) -> Fault:
    """Promises the whole file, sends `n` bytes and closes the connection."""

    def fault(handler: Handler, content: bytes | None) -> None:
        assert content is not None
        handler.head(200, len(content))
        handler.body(content[:n])

    return fault


def hang_after(n: int) -> Fault:
    """Promises the whole file, sends `n` bytes and then nothing until the server closes."""

    def fault(handler: Handler, content: bytes | None) -> None:
        cut_after(n)(handler, content)
        handler.host.closing.wait(30)

    return fault


def unmeasured(handler: Handler, content: bytes | None) -> None:
    """Right, without a length."""
    assert content is not None
    handler.head(200, None)
    handler.body(content)


def dropped(handler: Handler, _: bytes | None) -> None:
    """Closes the connection without an answer."""


def instead(content: bytes) -> Fault:
    """Another content."""
    return lambda handler, _: answer(handler, content)


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Clients that close the connection are part of the tests."""


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Server]:
    """Runs a server inside a `with` block."""
    host = Server(files)
    handler = type("Bound", (Handler,), {"host": host})
    with _Quiet(("127.0.0.1", 0), handler) as server:
        host.url = f"http://127.0.0.1:{server.server_address[1]}"
        options = {"poll_interval": 0.01}
        thread = threading.Thread(target=server.serve_forever, kwargs=options, daemon=True)
        thread.start()
        try:
            yield host
        finally:
            host.closing.set()
            server.shutdown()
            thread.join()
