"""What the cases share: an archive with images, networks with a server, and clients on them."""

import sys
from contextlib import ExitStack, contextmanager

from network import Bridge, Network
from programs import CLIENTS, Failed, call
from service import Client, Server, expect_equal

IMAGES = {"small": 48, "web": 128}


class Lab:
    """A folder with an archive, and what has been counted."""

    def __init__(self, onefold, folder, seed, counts, bootable=None):
        self.onefold, self.folder, self.seed, self.counts = onefold, folder, seed, counts
        self.archive = folder / "archive"
        self.images = {name: folder / f"{name}.raw" for name in IMAGES}
        # A raw image of Debian 12, or None.
        self.bootable = bootable
        self.notes = []

    def prepare(self):
        """Makes the images and captures them."""
        call(self.onefold, "archive", "create", "--quiet", self.archive)
        for name, mib in IMAGES.items():
            call(sys.executable, CLIENTS / "make_image.py", self.images[name], mib, f"{self.seed}/{name}")
            self.capture(self.images[name], name)

    def capture(self, image, name):
        call(self.onefold, "image", "capture", "--quiet", self.archive, image, name, timeout=900)
        self.images[name] = image

    def note(self, text):
        """Keeps a figure that is shown beside the result of the case."""
        self.notes.append(text)

    @contextmanager
    def served(self, folder, fabric=None, server_mbit=None, **options):
        """Yields a `Site`: a network with a server."""
        with Network(fabric or Bridge()) as network:
            machine = network.machine(server_mbit)
            with Server(machine, self.onefold, self.archive, folder / "server.log", **options) as server:
                with Site(self, folder, network, server) as site:
                    yield site
                    if server.process.poll() is not None:
                        raise Failed(f"the server ended with {server.process.returncode}: {server.text()}")
                    server.stop()


class Site:
    """A network with a server, and its clients."""

    def __init__(self, lab, folder, network, server):
        self.lab, self.folder, self.network, self.server = lab, folder, network, server
        self.clients, self.closing = [], ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closing.close()

    def machines(self, count, rate_mbit=None):
        return [self.network.machine(rate_mbit) for _ in range(count)]

    def client(self, machine, image="small", target=None, server=None, **options):
        """Prepares an installation. It is killed with the site."""
        target = target or self.folder / f"disk-{len(self.clients)}"
        client = Client(machine, self.lab.onefold, server or self.server, image, target, **options)
        self.closing.callback(client.kill)
        self.clients.append(client)
        return client

    def start(self, machines, image="small", **options):
        """Begins an installation on each machine."""
        return [self.client(machine, image, **options).start() for machine in machines]

    def finish(self, clients, seconds):
        """Waits for the end of installations. Each disk must be the image. Returns the reports."""
        reports = [client.result(seconds) for client in clients]
        for client in clients:
            expect_equal(client.target, self.lab.images[client.image])
            client.target.unlink()
        self.lab.counts["disks"] += len(clients)
        return reports

    def sent(self):
        """Returns how many bytes the server's machine has sent."""
        return self.server.machine.traffic()[1]
