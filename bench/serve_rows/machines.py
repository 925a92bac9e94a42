"""Onefold's two sides as processes: a server of images, and clients that install from it."""

import json
import os
import re
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lib import system
from lib.system import BenchError

from .child import Child, wait_all
from .network import INTERFACE, SERVER, wait_until

GROUP = "239.192.3.7"
KEY = "multicast.key"
# Of the threads of a client: the one that receives by multicast.
RECEIVER = "multicast"


@dataclass
class Installed:
    """What one client took, and what it said."""

    seconds: float
    cpu_seconds: float
    memory_bytes: int
    told: dict
    # Processor time of its receiving thread.
    receiver_seconds: float = 0.0


@dataclass
class Serving:
    """A server that runs."""

    process: object
    address: str
    # How clients reach it, and by which way they take the image.
    words: tuple

    def cpu_seconds(self):
        return system.process_cpu_seconds(self.process.pid)

    def memory_bytes(self):
        """Returns the highest resident memory so far."""
        return system.memory_status(self.process.pid)["VmHWM"]


@contextmanager
def server(images, network=None, rate=None, options=()):
    """Serves the archive of a run: on a network, or on this machine only. `rate` has images sent by multicast."""
    place = (images.programs.onefold, "image", "serve", "--plain", *options)
    client = ("--unsigned", "--allow-http")
    if network is not None:
        words = (*network.at(SERVER), *place, "--interface", INTERFACE)
    else:
        words = (*place, "--listen", "127.0.0.1:0")
    if rate is not None:
        key = images.folder / KEY
        if not key.exists():
            os.close(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600))
            key.write_text("7" * 64 + "\n", encoding="ascii")
        words = (*words, "--multicast", GROUP, "--multicast-key", key, "--rate", rate)
        client = (*client, "--multicast-key", key)
    log = images.folder / "serve.log"
    with open(log, "w", encoding="utf-8") as said:
        words = [os.fspath(word) for word in (*words, images.archive)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        # Chunks that are made beforehand take their time.
        wait_until(lambda: places(process, log), "the server does not begin", system.COMMAND_SECONDS_MAX)
        yield Serving(process, places(process, log)[0], client)
    finally:
        system.end(process)


def places(process, log):
    """Returns the addresses of a server, none before it serves. Raises BenchError where it has ended."""
    said = log.read_text(encoding="utf-8")
    if process.poll() is not None:
        raise BenchError(f"the server has ended: {said.strip()}")
    return re.findall(r"^serving .* at (http://[0-9.:]+)\n", said, re.MULTILINE)


class Client(Child):
    """An installation that runs."""

    def __init__(
        self, images, serving, name, target, network=None, number=None, options=(), group=None, is_quiet=True
    ):
        quiet = ("--quiet",) if is_quiet else ()
        install = (images.programs.onefold, "image", "install", *quiet, "--json", *serving.words, *options)
        at = network.at(number) if network else ()
        super().__init__(*at, *install, serving.address, name, target, group=group)
        self._receiver_seconds = 0.0

    def poll(self):
        if self.process.returncode is None:
            self._receiver_seconds = max(self._receiver_seconds, receiver_seconds(self.process.pid))
        return super().poll()

    def took(self):
        took = super().took()
        told = json.loads(took.out) | {"notes": took.err}
        return Installed(took.seconds, took.cpu_seconds, took.memory_bytes, told, self._receiver_seconds)


def receiver_seconds(pid):
    """Returns the processor time of the receiving thread of a client so far; 0 where it has none."""
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "comm").read_text(encoding="utf-8").strip() == RECEIVER:
                ticks = (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
                return sum(map(int, ticks)) / system.TICKS_PER_SECOND
    except OSError:
        # It has just ended.
        pass
    return 0.0


def install(images, serving, name, target, **more):
    """Installs once, and waits for it."""
    return wait_all([Client(images, serving, name, target, **more)])[0]


def install_all(images, serving, network, name, count=None):
    """Installs on all machines of a network at once, each to a new file; returns what each took."""
    numbers = list(network.clients)[:count]
    targets = {number: images.targets / f"disk-{number}" for number in numbers}
    for target in targets.values():
        target.unlink(missing_ok=True)
    clients = [Client(images, serving, name, targets[number], network, number) for number in numbers]
    installed = wait_all(clients)
    for target in targets.values():
        images.expect_installed(target, name)
    return installed
