"""A TCP proxy that can cut or delay connections, drop answers, or deliver a request late."""
import socket
import struct
import threading
import time


class Proxy:
    """Proxies one address of this machine. Thread-safe."""

    def __init__(self, target):
        self.target, self.pairs, self.lock = target, set(), threading.Lock()
        self.hold_until = 0.0
        self.to_lose = 0
        self.held = self.lost = 0  # counters
        self.marker, self.request, self.caught, self.released = None, None, threading.Event(), threading.Event()
        self.server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Resets all connections. Returns their number."""
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            self._close(pair)
        return len(pairs)

    def hold(self, seconds):
        """Forwards nothing for `seconds`."""
        self.hold_until = time.monotonic() + seconds

    def lose(self, answers):
        """Cuts the next `answers` connections that carry an answer, before it arrives. The requests were executed."""
        with self.lock:
            self.to_lose += answers

    def catch(self, marker, seconds):
        """Holds the next request that matches the pattern `marker`, and all later data of its connection, until
        `release`. Returns the request, or None if none comes in time."""
        self.caught.clear()
        self.released.clear()
        with self.lock:
            self.marker = marker
        self.caught.wait(seconds)
        with self.lock:
            self.marker = None
        return self.request if self.caught.is_set() else None

    def release(self):
        self.released.set()

    def stop(self):
        self.released.set()
        try:
            self.server.shutdown(socket.SHUT_RDWR)  # wakes the accept thread
        except OSError:
            pass
        self.server.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(("127.0.0.1", self.target), timeout=2)
                upstream.settimeout(None)
            except OSError:
                client.close()
                continue
            pair = (client, upstream)
            for sock in pair:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.pairs.add(pair)
            threading.Thread(target=self._pump, args=(pair, client, upstream, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(pair, upstream, client, True), daemon=True).start()

    def _pump(self, pair, source, sink, answers):
        try:
            while data := source.recv(65536):
                wait = self.hold_until - time.monotonic()
                if wait > 0:
                    self.held += 1
                    time.sleep(wait)
                if answers and self._loses():
                    break
                if not answers and self._catches(data):
                    self.released.wait()
                sink.sendall(data)
        except OSError:
            pass
        self._close(pair)

    def _catches(self, data):
        if self.marker is None:
            return False
        with self.lock:
            if self.marker is None or not self.marker.search(data):
                return False
            self.marker, self.request = None, data
        self.caught.set()
        return True

    def _loses(self):
        if self.to_lose == 0:
            return False
        with self.lock:
            lost = self.to_lose > 0
            self.to_lose -= lost
            self.lost += lost
            return lost

    def _close(self, pair):
        with self.lock:
            self.pairs.discard(pair)
        for sock in pair:
            try:
                # Send a reset, like a host that disappears.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
