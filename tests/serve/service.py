"""A server of images and its clients, as processes on machines of a network, and what their disks must hold."""

import json
import os
import signal
import subprocess
import time
from contextlib import ExitStack

from programs import Failed, expect_no_panic, wait_until

GROUP = "239.192.3.7"
PORT = 7443
BEGIN_S = 20
# A client that is killed has this long to be gone, and a server to end by itself.
END_S = 30
SECTOR_BYTES = 512
COMPARED_BYTES = 1 << 20
# Both ends of a disk are wiped first and written last, so that a disk with half an image does not boot.
ENDS_BYTES = 1 << 20


class Server:
    """`image serve` on a machine, which may be killed and started again. With a file of a key it serves without TLS."""

    def __init__(self, machine, onefold, archive, log, rate="16M", key=None, options=(), env=None):
        self.machine, self.log, self.key, self.env = machine, log, key, os.environ | (env or {})
        access = ("--plain", "--multicast-key", key) if key else ("--state", log.with_suffix(".state"))
        words = ("image", "serve", *access, "--interface", "eth0", "--multicast", GROUP, "--rate", rate)
        self.words = machine.words(onefold, *words, "--memory", "64M", *options, archive)
        self.url = f"{'http' if key else 'https'}://{machine.address}:{PORT}"
        self.said = f"multicast from {machine.address} to {GROUP}"
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        """Starts the server, and waits until it serves."""
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.words, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)  # fmt: skip
        wait_until(self.serves, BEGIN_S, f"the server begins: {self.text()}")

    def serves(self):
        if self.process.poll() is not None:
            raise Failed(f"the server ended with {self.process.returncode}: {self.text()}")
        return self.said in self.text()

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def access(self):
        """Returns the options with which a client gets access."""
        if self.key:
            return "--allow-http", "--multicast-key", self.key
        return "--pin", self.text().partition("for --pin: ")[2].split()[0]

    def suspend(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        """Kills the server, if it runs."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_S)
        expect_no_panic(self.text(), "the server")

    def stop(self):
        """Ends the server as a user does. It must end well."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(END_S)
        expect_no_panic(self.text(), "the server")
        if code != 0:
            raise Failed(f"the server ended with {code}: {self.text()}")


class Client:
    """`image install` on a machine, from a server to a file."""

    def __init__(self, machine, onefold, server, image, target, options=("--json",), before=(), log=None):
        self.machine, self.image, self.target = machine, image, target
        # What it says, and its report.
        self.log = log or target.with_suffix(".log")
        self.report = self.log.with_suffix(".report")
        words = ("image", "install", "--unsigned", *server.access(), "--memory", "64M", *options)
        self.words = machine.words(*before, onefold, *words, server.url, image, target)
        self.process, self.began, self.seconds, self.closing = None, None, None, ExitStack()

    def start(self):
        """Begins the installation, and returns this."""
        self.began = time.monotonic()
        with open(self.log, "wb") as log, open(self.report, "wb") as out:
            self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                            start_new_session=True)  # fmt: skip
        return self

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def says(self, text):
        return text in self.text()

    def wait_to_say(self, text, seconds):
        """Waits until the client says something, and returns how many seconds after its beginning that was."""

        def said():
            return self.says(text) or self.has_ended()

        wait_until(said, seconds, f"machine {self.machine.number} says `{text}`")
        if not self.says(text):
            raise Failed(f"machine {self.machine.number} ended without `{text}`: {self.text()}")
        return time.monotonic() - self.began

    def has_ended(self):
        return self.process.poll() is not None

    def written(self):
        """Returns how many bytes the client has handed over to its disk, or None once it has ended."""
        try:
            with open(f"/proc/{self.process.pid}/io", encoding="ascii") as file:
                return int(next(line for line in file if line.startswith("wchar:")).split()[1])
        except (OSError, StopIteration):
            return None

    def wait_to_write(self, count, seconds, why="it was begun"):
        """Waits until the client has written so many bytes, or has ended."""

        def has_written():
            written = None if self.has_ended() else self.written()
            return written is None or written >= count

        what = f"after {why}, machine {self.machine.number} writes {count} bytes"
        try:
            wait_until(has_written, seconds, what)
        except Failed as failed:
            raise Failed(f"{failed}; it wrote {self.written()}, and said: {self.text()}") from None

    def suspend(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        """Kills the client, if it runs. Returns whether it ran."""
        is_running = self.process is not None and not self.has_ended()
        if is_running:
            self.process.kill()
        if self.process is not None:
            self.process.wait(END_S)
        return is_running and self.process.returncode != 0

    def result(self, seconds):
        """Waits until the installation has ended well, within so many seconds of its beginning. Returns its report."""
        try:
            code = self.process.wait(max(0, self.began + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failed(f"machine {self.machine.number} is not done within {seconds:.0f} s: {self.text()}") from None
        self.seconds = time.monotonic() - self.began
        expect_no_panic(self.text(), f"machine {self.machine.number}")
        if code != 0:
            raise Failed(f"machine {self.machine.number} ended with {code}: {self.text()}")
        report = self.report.read_text(encoding="utf-8")
        return json.loads(report) if "--json" in self.words else report


    def failure(self, seconds):
        """Waits until the installation has failed, within so many seconds of its beginning. Returns what it said."""
        wait_until(self.has_ended, self.began + seconds - time.monotonic(), "an installation fails")
        expect_no_panic(self.text(), f"machine {self.machine.number}")
        if self.process.returncode in (0, -signal.SIGKILL):
            raise Failed(f"machine {self.machine.number} ended with {self.process.returncode}: {self.text()}")
        return self.text()


def multicast_share(report):
    """Returns which part of the chunks came by multicast."""
    counts = report["multicast"]
    return counts["chunks"] / max(1, counts["chunks"] + counts["http_chunks"])


def loss(report):
    """Returns which part of the packets did not arrive."""
    counts = report["multicast"]
    return 1 - counts["received_packets"] / max(1, counts["sent_packets"])


def expect_equal(target, image):
    """The disk is the image, byte by byte."""
    if target.stat().st_size != image.stat().st_size:
        raise Failed(f"{target} has {target.stat().st_size} bytes")
    for offset, found, expected, _ in pieces(target, image):
        if found != expected:
            at = next(at for at in range(len(found)) if found[at] != expected[at])
            raise Failed(f"{target} is not the image at byte {offset + at}")


def expect_no_wrong_byte(target, image, before):
    """Each sector of the disk is that of the image, or as it was before; or it is wiped, if it is at an end."""
    size = image.stat().st_size
    for offset, found, expected, earlier in pieces(target, image, before):
        if found in (expected, earlier):
            continue
        for start in range(0, len(found), SECTOR_BYTES):
            sector = found[start : start + SECTOR_BYTES]
            if sector in (expected[start : start + SECTOR_BYTES], earlier[start : start + SECTOR_BYTES]):
                continue
            at = offset + start
            is_end = at < ENDS_BYTES or at >= size - ENDS_BYTES
            if any(sector) or not is_end:
                raise Failed(f"{target} has a wrong sector at byte {at}")


def pieces(target, image, before=None):
    """Yields the places of a disk, with what is there, what the image has, and what was there before."""
    with ExitStack() as stack:
        files = [stack.enter_context(open(path, "rb")) for path in (target, image, *([before] if before else []))]
        offset = 0
        while any(parts := [file.read(COMPARED_BYTES) for file in files]):
            yield offset, parts[0], parts[1], parts[2] if before else None
            offset += COMPARED_BYTES


def fill(path, size, dice):
    """Makes a disk of noise that repeats itself, without holes."""
    noise = dice.randbytes(COMPARED_BYTES)
    with open(path, "wb") as file:
        for offset in range(0, size, COMPARED_BYTES):
            file.write(noise[: size - offset])
        file.flush()
        os.fsync(file.fileno())
