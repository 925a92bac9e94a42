#!/usr/bin/env python3
"""The part of the demo in which a server sends one image to three machines at once.

    serve.py ONEFOLD ARCHIVE IMAGE FOLDER

Server and machines are processes in network namespaces of their own, and each machine loses 2 % of all packets. The first
one is killed on its way and goes on, the second one comes half way, and multicast does not reach the third one. All
disks must be the image in the end. The first one stays, as FOLDER/machine-1.raw. Needs root.
"""

import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "serve"))
# pylint: disable=wrong-import-position
from network import GROUPS, Bridge, Network  # noqa: E402
from programs import Failed, call  # noqa: E402
from service import Client, Server, expect_equal  # noqa: E402

LOSS_PERCENT = 2
LINK_MBIT = 1000
RATE = "20M"
NAMES = ("the one that was killed", "the one that came half way", "the one without multicast")
KILLED_AT, JOINED_AT = 0.3, 0.5
INSTALL_S = 120
EXPORT_S = 300
POLL_S = 0.1


def say(text):
    print(f"    {text}", file=sys.stderr, flush=True)


class Demo:
    """A network with a server and three machines, until the `stack` ends."""

    def __init__(self, stack, onefold, archive, image, folder):
        self.image, self.exported = image, folder / "exported.raw"
        self.exported.unlink(missing_ok=True)
        call(onefold, "image", "export", "--quiet", archive, image, self.exported, timeout=EXPORT_S)
        network = stack.enter_context(Network(Bridge()))
        # Keys of multicast come over TLS.
        server = Server(network.machine(LINK_MBIT), onefold, archive, folder / "server.log", RATE)
        stack.enter_context(server)
        self.server, self.clients = server, []
        for number in (1, 2, 3):
            machine = network.machine(LINK_MBIT)
            losses = [f"numgen random mod 100 < {LOSS_PERCENT}"]
            machine.drop(*(losses if number < 3 else [GROUPS, *losses]))
            target = folder / f"machine-{number}.raw"
            target.unlink(missing_ok=True)
            # A disk that is there, so that a killed installation leaves something.
            with open(target, "wb") as disk:
                disk.truncate(self.exported.stat().st_size)
            client = Client(machine, onefold, server, image, target, ("--force",))
            stack.callback(client.kill)
            self.clients.append(client)

    def run(self):
        """Has the machines install, and shows what each one reports."""
        killed, late, deaf = self.clients
        data = self.exported.stat().st_blocks * 512
        say(f"the server sends {self.image} at {RATE}B/s; machines 1 and 3 begin")
        killed.start()
        deaf.start()
        killed.wait_to_write(round(data * KILLED_AT), INSTALL_S)
        if killed.kill():
            say("machine 1 is killed, and begins again")
        killed.start()
        deaf.wait_to_write(round(data * JOINED_AT), INSTALL_S)
        say("machine 2 comes half way")
        late.start()
        reports = results(self.clients)
        for number, (client, name, report) in enumerate(zip(self.clients, NAMES, reports), 1):
            expect_equal(client.target, self.exported)
            say(f"machine {number}, {name}, after {client.seconds:.0f} s:")
            for line in [*complaints(client), *report.splitlines()]:
                say(f"  {line}")
        _, sent = self.server.machine.traffic()
        say(f"every disk is the image, byte by byte; the server sent {sent >> 20} MiB")
        self.server.stop()


def results(clients):
    """Returns the reports of the machines. The seconds of each one end when it does, whichever is the first."""
    reports = [None] * len(clients)
    while None in reports:
        time.sleep(POLL_S)
        for at, client in enumerate(clients):
            is_late = time.monotonic() - client.began > INSTALL_S
            if reports[at] is None and (client.has_ended() or is_late):
                reports[at] = client.result(INSTALL_S)
    return reports


def complaints(client):
    """Returns what a machine said about multicast that does not arrive."""
    return [line for line in client.text().splitlines() if "does not arrive" in line]


def main():
    onefold, archive, image, folder = sys.argv[1:]
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with ExitStack() as stack:
            demo = Demo(stack, onefold, archive, image, folder)
            demo.run()
    except Failed as failed:
        print(f"error: {failed}", file=sys.stderr)
        return 1
    for path in (demo.exported, *(client.target for client in demo.clients[1:])):
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
