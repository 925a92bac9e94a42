"""One node of Ceph with its object gateway on loopback, and the requests that it has answered."""

import os
import re
import time

from lib import system
from lib.programs import REPOSITORY
from lib.system import BenchError

SCRIPT = REPOSITORY / "tests" / "s3" / "ceph.sh"
PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "ceph", "curl")
# `make test-s3` has another one.
PORT = 17581
BUCKET = "images"
# Digest of nothing, which a signed request without a body names.
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
# A line of the gateway's log for each request that it has answered.
REQUEST = re.compile(r'beast: .*"([A-Z]+) (\S+) HTTP/1\.1"')
LOG_SECONDS_MAX = 30
LOG_POLL_SECONDS = 0.1


class Gateway:
    """Ceph in a folder beside that of a run, so that the next run ends what a killed one has left."""

    def __init__(self, work):
        self.home = work.parent / "ceph"
        # What programs need to reach it.
        self.environment = {}

    @property
    def _log(self):
        return self.home / "log" / "client.rgw.a.log"

    def start(self):
        """Starts it and makes the bucket."""
        self.stop()
        address, key, secret = self._script("start").split()
        self.environment = {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
        self._curl(f"{address}/{BUCKET}", "PUT")

    def stop(self):
        """Ends what of it runs, in whatever state, and removes its folder."""
        if self.home.exists():
            self._script("stop")

    def log_bytes(self):
        """Returns how long the log is once it has all requests that were answered."""
        # Lines are written some time later, in the order of the answers: one more request shows the end.
        mark = f"/{BUCKET}/mark-{time.monotonic_ns()}"
        self._curl(self.environment["AWS_ENDPOINT_URL"] + mark, "DELETE")
        ends = time.monotonic() + LOG_SECONDS_MAX
        while time.monotonic() < ends:
            end = end_of_mark(self._log.read_bytes(), mark)
            if end is not None:
                return end
            time.sleep(LOG_POLL_SECONDS)
        raise BenchError("the gateway's log does not tell of a request")

    def requests_since(self, start, end=None):
        """Returns how many requests of each method there were from one length of the log to another, or to now."""
        end = self.log_bytes() if end is None else end
        with open(self._log, "rb") as log:
            log.seek(start)
            return requests_in(log.read(end - start).decode(errors="replace"))

    def _curl(self, address, method):
        user = f"{self.environment['AWS_ACCESS_KEY_ID']}:{self.environment['AWS_SECRET_ACCESS_KEY']}"
        system.run(
            "curl", "--silent", "--show-error", "--fail", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", user,
            "--header", f"x-amz-content-sha256: {EMPTY_SHA256}", "--request", method, address,
        )  # fmt: skip

    def _script(self, word):
        return system.run("env", f"CEPH_HOME={os.fspath(self.home)}", f"CEPH_PORT={PORT}", SCRIPT, word).text


def end_of_mark(log, mark):
    """Returns where the line about a request for `mark` ends; None where there is none yet, or half of it."""
    at = log.find(f" {mark} HTTP".encode())
    end = log.find(b"\n", at)
    return None if at < 0 or end < 0 else end + 1


def requests_in(log):
    """Returns how many requests of each method a part of the log tells of, without marks."""
    methods = [method for method, path in REQUEST.findall(log) if not path.startswith(f"/{BUCKET}/mark-")]
    return {method: methods.count(method) for method in ("DELETE", "GET", "HEAD", "PUT")}
