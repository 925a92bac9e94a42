#!/usr/bin/env python3
"""A server in memory that speaks as much of S3 as an archive needs, and fails on request. For tests on loopback only.

    server.py [--port N] [--key KEY] [--ignore-conditions] [--no-conditions] [--tls FILE]

Prints its address once it accepts connections, and ends with its standard input. It checks the access key,
but no signature. The bucket `images` exists. FILE has a certificate for 127.0.0.1 with its key, for encrypted connections.

A PUT to `/_faults` sets the faults of the next requests: a JSON list of objects with

    method, part    the requests that fail: the method, and a part of the path; any if left out
    count           how many of them fail; 1 if left out
    status, code    the answer; the connection is cut without one if there is no status
    effect          whether the request takes effect although its answer is a fault
    delay           seconds before the answer, whatever it is; a fault with nothing else only delays

A GET of `/_requests` returns how many requests of each method there were.
"""

import argparse
import contextlib
import json
import socket
import ssl
import sys
import threading
import time
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

BUCKET = "images"
PAGE_MAX = 1000


class State:
    """Objects, faults and counts."""

    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.objects = {}
        self.faults = []
        self.requests = Counter()

    def fault_of(self, method, path):
        """Takes the fault of a request."""
        with self.lock:
            self.requests[method] += 1
            for fault in self.faults:
                if fault.get("method", method) == method and fault.get("part", "") in path:
                    fault["count"] = fault.get("count", 1) - 1
                    if fault["count"] <= 0:
                        self.faults.remove(fault)
                    return fault
        return None


class Refused(Exception):
    """A refusal by S3."""

    def __init__(self, status, code):
        super().__init__(code)
        self.status = status
        self.code = code


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    state = None

    def log_message(self, *_arguments):
        pass

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>made up: {code}</Message></Error>"
        self.answer(status, body.encode())

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.unquote(self.path)
        if path == "/_faults":
            with self.state.lock:
                self.state.faults = json.loads(body)
            return self.answer(200)
        if path == "/_requests":
            return self.answer(200, json.dumps(self.state.requests).encode())
        fault = self.state.fault_of(self.command, path)
        if fault is None:
            return self.serve_whole(body)
        time.sleep(fault.get("delay", 0))
        if fault.get("effect"):
            with contextlib.suppress(Refused):
                self.apply(body)
        if "status" in fault:
            return self.refuse(fault["status"], fault.get("code", "Fault"))
        if "delay" in fault:
            return self.serve_whole(body)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        return None

    do_GET = do_PUT = do_DELETE = do_HEAD = serve

    def serve_whole(self, body):
        try:
            self.answer(*self.apply(body))
        except Refused as refusal:
            self.refuse(refusal.status, refusal.code)

    def apply(self, body):
        """Carries a request out. Returns the answer."""
        url = urllib.parse.urlsplit(self.path)
        bucket, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        if f"Credential={self.state.options.key}/" not in self.headers.get("Authorization", ""):
            raise Refused(403, "InvalidAccessKeyId")
        if bucket != BUCKET:
            raise Refused(404, "NoSuchBucket")
        with self.state.lock:
            if self.command == "PUT":
                return self.put(key, body)
            if self.command == "DELETE":
                self.state.objects.pop(key, None)
                return 204, b"", ()
            if not key:
                return self.list(dict(urllib.parse.parse_qsl(url.query)))
            return self.get(key)

    def put(self, key, body):
        if self.headers.get("If-None-Match"):
            if self.state.options.no_conditions:
                raise Refused(501, "NotImplemented")
            if key in self.state.objects and not self.state.options.ignore_conditions:
                raise Refused(412, "PreconditionFailed")
        self.state.objects[key] = body
        return 200, b"", (("ETag", '"0"'),)

    def get(self, key):
        if key not in self.state.objects:
            raise Refused(404, "NoSuchKey")
        whole = self.state.objects[key]
        headers = [("ETag", '"0"'), ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")]
        wanted = self.headers.get("Range")
        if not wanted:
            return 200, whole, headers
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        if first:
            start, end = int(first), min(int(last or len(whole)) + 1, len(whole))
        else:
            start, end = max(0, len(whole) - int(last)), len(whole)
        if start >= len(whole):
            raise Refused(416, "InvalidRange")
        headers.append(("Content-Range", f"bytes {start}-{end - 1}/{len(whole)}"))
        return 206, whole[start:end], headers

    def list(self, query):
        after = query.get("continuation-token") or query.get("start-after", "")
        page_max = min(int(query.get("max-keys", PAGE_MAX)), PAGE_MAX)
        keys = sorted(key for key in self.state.objects if key.startswith(query.get("prefix", "")) and key > after)
        page = keys[:page_max]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.state.objects[key])}</Size><ETag>0</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(keys) > len(page) else ""
        text = f"<?xml version='1.0'?><ListBucketResult><Name>{BUCKET}</Name>{contents}{token}</ListBucketResult>"
        return 200, text.encode(), ()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key", default="testkey")
    parser.add_argument("--ignore-conditions", action="store_true")
    parser.add_argument("--no-conditions", action="store_true")
    parser.add_argument("--tls")
    options = parser.parse_args()
    Handler.state = State(options)
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 64
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    scheme = "https" if options.tls else "http"
    print(f"{scheme}://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
