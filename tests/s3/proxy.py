#!/usr/bin/env python3
"""A proxy in front of an object store that fails some requests, by a seed. For tests on loopback only.

    proxy.py --to http://127.0.0.1:PORT [--one-in N] [--seed N]

Prints its own address once it accepts connections, and ends with its standard input. Then it prints how many requests
it passed on, and how many faults of each kind there were. It changes no header, so signatures stay valid.
"""

import argparse
import http.client
import random
import socket
import sys
import threading
import time
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ["429", "500", "503", "cut before", "cut after", "cut in the answer", "slow"]
HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    options = None
    random = None
    lock = threading.Lock()
    counts = Counter()

    def log_message(self, *_arguments):
        pass

    def fault(self):
        with self.lock:
            is_fault = self.random.randrange(self.options.one_in) == 0
            fault = self.random.choice(FAULTS) if is_fault else "none"
            self.counts[fault] += 1
        return fault

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.fault()
        if fault.isdigit():
            return self.refuse(int(fault))
        if fault == "cut before":
            return self.cut()
        if fault == "slow":
            time.sleep(2)
        status, headers, answer = self.pass_on(body)
        if fault == "cut after":
            return self.cut()
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if fault == "cut in the answer":
            self.wfile.write(answer[: len(answer) // 2])
            return self.cut()
        self.wfile.write(answer)
        return None

    do_GET = do_PUT = do_DELETE = do_POST = serve

    def refuse(self, status):
        text = b"<Error><Code>SlowDown</Code></Error>"
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def cut(self):
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def pass_on(self, body):
        """Returns status, headers and body of the store's answer."""
        connection = http.client.HTTPConnection(self.options.host, timeout=120)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in HOP_HEADERS:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP_HEADERS]
        result = answer.status, headers, answer.read()
        connection.close()
        return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", required=True)
    parser.add_argument("--one-in", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    Handler.options = parser.parse_args()
    Handler.options.host = urllib.parse.urlsplit(Handler.options.to).netloc
    Handler.random = random.Random(Handler.options.seed)
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 64
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.buffer.read()
    print(", ".join(f"{fault}: {count}" for fault, count in sorted(Handler.counts.items())), flush=True)


if __name__ == "__main__":
    main()
