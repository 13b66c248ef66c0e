"""HTTP without TLS, answered in threads."""

from __future__ import annotations

import http.server
import socket
from typing import Any


class Listener(http.server.ThreadingHTTPServer):
    """Listens on HOST:PORT; port 0 chooses a free port. `address` names it.

    Raises OSError or ValueError if the address cannot be listened on.
    """

    request_queue_size = 1024
    daemon_threads = True

    def __init__(self, address: str, handler: type[Handler]):
        host, _, port = address.rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{address} is not HOST:PORT")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host.strip("[]"), int(port)), handler)
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error}") from None
        self.address = f"{host}:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Writes no log."""

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
