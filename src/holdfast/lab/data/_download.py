"""One file over HTTP: resumed, retried, never longer without a byte than patience lasts."""

import http.client
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from holdfast.lab.data._source import PassingError, SourceError, UnreachableError
from holdfast.lab.data._store import storing, write_all

_CHUNK = 1 << 16
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")


@final
@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait for a byte, and how long before each further attempt (all in seconds)."""

    timeout: float = 15.0
    pauses: tuple[float, ...] = (0.5, 1.0, 2.0)


@final
@dataclass
class Download:
    """The download of `url` into the file `part`, which is continued if it holds a beginning.

    Passing failures (a busy server, a cut connection, silence) are retried after each of the pauses, from where the last
    attempt stopped. Where no connection is made or the server refuses, there is no second attempt.

    `resumed` tells whether bytes of an earlier attempt are part of the result; they may be of another file.
    """

    url: str
    part: Path
    patience: Patience
    report: Callable[[int, int | None], None]
    resumed: bool = field(default=False, init=False)

    def run(self) -> None:
        """Fills the part.

        Raises:
            SourceError: if the server does not deliver the whole; what came stays in the part.
            FetchError: if the folder cannot hold it; the same.
        """
        for pause in self.patience.pauses:
            try:
                self._attempt()
                return
            except PassingError:
                time.sleep(pause)
        self._attempt()

    def _attempt(self) -> None:
        start = self.part.stat().st_size if self.part.exists() else 0
        request = Request(self.url, headers={"Range": f"bytes={start}-"} if start else {})
        try:
            response = urlopen(request, timeout=self.patience.timeout)
        except HTTPError as error:
            with error:
                if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                    self._settle(start, error.headers.get("Content-Range", ""))
                    return
                raise self._explained(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._explained(error) from error
        with response:
            self._receive(response, start)

    def _settle(self, start: int, content_range: str) -> None:
        """Nothing is left to send: the part is complete, or is no beginning of this file and must go."""
        matched = _RANGE.match(content_range)
        if matched and int(matched[2]) == start:
            self.resumed = True
            return
        self.part.unlink()
        raise PassingError("its file is shorter than what is here")

    def _receive(self, response: http.client.HTTPResponse, start: int) -> None:
        matched = _RANGE.match(response.headers.get("Content-Range", ""))
        self.resumed = response.status == http.client.PARTIAL_CONTENT
        if self.resumed and (matched is None or matched[1] != str(start)):
            self.part.unlink()
            raise PassingError("it sent another part of the file than asked for")
        done = start if self.resumed else 0
        total = done + response.length if response.length is not None else None
        with storing(self.part.parent):
            file = self.part.open("ab" if self.resumed else "wb", buffering=0)
        with file:
            self.report(done, total)
            for chunk in self._chunks(response):
                with storing(self.part.parent):
                    write_all(file, chunk)
                done += len(chunk)
                self.report(done, total)
        if total is not None and done < total:
            raise PassingError(f"the connection was cut after {done} of {total} bytes")

    def _chunks(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        left = response.length
        while left is None or left > 0:
            try:
                chunk = response.read1(_CHUNK if left is None else min(_CHUNK, left))
            except (OSError, http.client.HTTPException) as error:
                raise self._explained(error) from error
            if not chunk:
                return
            left = None if left is None else left - len(chunk)
            yield chunk

    def _explained(self, error: Exception) -> SourceError:
        """The failure in words, and whether to try again."""
        match error:
            case HTTPError():
                reason = f"{error.code} {error.reason}"
                is_passing = error.code >= 500 or error.code in (
                    http.client.REQUEST_TIMEOUT,
                    http.client.TOO_MANY_REQUESTS,
                )
                return PassingError(reason) if is_passing else SourceError(reason)
            case URLError(reason=socket.gaierror()):
                return UnreachableError("its name cannot be resolved")
            case URLError(reason=ssl.SSLError() as reason):
                return SourceError(str(reason))
            case URLError(reason=TimeoutError()):
                return UnreachableError(f"no connection within {self.patience.timeout:g} s")
            case URLError(reason=ConnectionResetError()):
                return PassingError("the connection was cut")
            case URLError(reason=OSError() as reason):
                return UnreachableError(reason.strerror or str(reason))
            case TimeoutError():
                return PassingError(f"no byte for {self.patience.timeout:g} s")
            case http.client.InvalidURL() | URLError():
                return SourceError(str(error))
        return PassingError(f"the connection was cut ({str(error) or type(error).__name__})")
