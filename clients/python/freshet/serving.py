"""Common parts of reward and environment servers."""

from __future__ import annotations

import contextlib
import ipaddress
import pathlib
import signal
import threading
from concurrent import futures

import grpc

from freshet.exposition import ProbeServer

_MAX_MESSAGE_BYTES = 16 << 20  # limit of a call's prompts and completions
DRAIN_SECONDS = 10.0
# Clients resolve the name of a server again when a connection ends, so they find further servers behind
# it within about this time. Calls in progress keep their connection.
_CONNECTION_AGE_MS = 60_000


def is_loopback(address: str) -> bool:
    host = address.rsplit(":", 1)[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _credentials(cert: str, key: str, ca: str | None) -> grpc.ServerCredentials:
    """Those of the files, which are read again when they have changed."""

    def read() -> list[bytes]:
        return [pathlib.Path(file).read_bytes() for file in (key, cert, ca) if file]

    def configuration(files: list[bytes]) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(files[0], files[1])], *files[2:])

    latest = read()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal latest
        try:
            files = read()
        except OSError:
            return None  # keeps the present ones
        if files == latest:
            return None
        latest = files
        return configuration(files)

    return grpc.dynamic_ssl_server_credentials(
        configuration(latest), renewed, require_client_authentication=ca is not None
    )


class Server:
    """A gRPC server in background threads of this process.

    address: HOST:PORT; port 0 chooses a free port. Without TLS it must be a loopback address, unless
    `insecure` is set. Renewed certificates are loaded without a restart.
    """

    metrics: tuple | list = ()  # that `run` shows

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
            ("grpc.max_connection_age_ms", _CONNECTION_AGE_MS),
        ]
        self._server = grpc.server(futures.ThreadPoolExecutor(workers), options=options)
        try:
            if cert and key:
                port = self._server.add_secure_port(address, _credentials(cert, key, ca))
            elif is_loopback(address) or insecure:
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

    def stuck(self) -> str:
        """Why the process can no longer serve and should be started again; "": it can."""
        return ""

    def run(self, what: str, http_address: str = "", drain_seconds: float = DRAIN_SECONDS) -> str:
        """Serves until SIGTERM or Ctrl-C, which returns "", or until it is stuck, which returns why; then drains.

        http_address: HOST:PORT of /healthz, /readyz and /metrics, in plaintext; "": none.
        drain_seconds: for calls in progress.
        """
        stop = threading.Event()
        why = ""
        with contextlib.ExitStack() as probes:
            shown = ""
            if http_address:
                def unready() -> str:
                    return self.stuck() or ("draining" if stop.is_set() else "")

                server = probes.enter_context(ProbeServer(http_address, self.metrics, unready))
                shown = f", metrics at {server.address}"
            self.start()
            print(f"{what} at {self.address}{shown}; press Ctrl-C to stop", flush=True)
            previous = {}
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGINT):
                    previous[number] = signal.signal(number, lambda *_: stop.set())
            try:
                while not why and not stop.wait(1.0):
                    why = self.stuck()
            finally:
                for number, handler in previous.items():
                    signal.signal(number, handler)
                stop.set()
                self.stop(drain_seconds)
        return why
