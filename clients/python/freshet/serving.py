"""Common parts of reward and environment servers."""

from __future__ import annotations

import ipaddress
import pathlib
import signal
import threading
from concurrent import futures

import grpc

_MAX_MESSAGE_BYTES = 16 << 20  # limit of a call's prompts and completions
DRAIN_SECONDS = 10.0


def _is_loopback(address: str) -> bool:
    host = address.rsplit(":", 1)[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    """A gRPC server in background threads of this process.

    address: HOST:PORT; port 0 chooses a free port. Without TLS it must be a loopback address, unless
    `insecure` is set.
    """

    def __init__(
        self,
        address: str,
        workers: int,
        *,
        cert: str | None = None,
        key: str | None = None,
        ca: str | None = None,
        insecure: bool = False,
    ):
        options = [
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),
            # Freshet's clients send keepalive pings more often than gRPC allows by default.
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
            ("grpc.http2.min_ping_interval_without_data_ms", 500),
            ("grpc.keepalive_permit_without_calls", 1),
        ]
        self._server = grpc.server(futures.ThreadPoolExecutor(workers), options=options)
        try:
            if cert and key:
                credentials = grpc.ssl_server_credentials(
                    [(pathlib.Path(key).read_bytes(), pathlib.Path(cert).read_bytes())],
                    root_certificates=pathlib.Path(ca).read_bytes() if ca else None,
                    require_client_auth=ca is not None,
                )
                port = self._server.add_secure_port(address, credentials)
            elif _is_loopback(address) or insecure:
                port = self._server.add_insecure_port(address)
            else:
                raise ValueError(
                    f"{address} is not a loopback address: give cert and key, or insecure=True"
                )
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from None
        if port == 0:
            raise OSError(f"cannot listen on {address}; choose another port")
        self.address = f"{address.rsplit(':', 1)[0]}:{port}"

    def start(self):
        self._server.start()
        return self

    def stop(self, grace: float = DRAIN_SECONDS) -> None:
        """Refuses new calls and waits up to `grace` seconds for running ones."""
        self._server.stop(grace).wait()

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the server is stopped."""
        self._server.wait_for_termination(timeout)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, what: str) -> None:
        """Serves until SIGTERM or Ctrl-C, then drains."""
        self.start()
        print(f"{what} at {self.address}; press Ctrl-C to stop", flush=True)
        stop = threading.Event()
        previous = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                previous[number] = signal.signal(number, lambda *_: stop.set())
        try:
            while not stop.wait(1.0):
                pass
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self.stop()
