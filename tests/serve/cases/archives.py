"""Archives that change, buckets that do not answer, and disks that are full, while machines install."""

import os
import signal
import sys
import time
from subprocess import PIPE

from cases.kills import MINUTE_S, expect_progress
from cases.links import expect_multicast
from lab import Site
from network import Bridge, Network
from programs import CLIENTS, HERE, Failed, call
from service import Server

S3 = HERE.parent / "s3" / "server.py"
BUCKET = "s3://images/archive"
KEYS = {"AWS_ACCESS_KEY_ID": "testkey", "AWS_SECRET_ACCESS_KEY": "secret"}
# Other images that come and go meanwhile, and their length.
OTHERS, OTHER_MIB = 4, 8
HASTE = ("--delay", "0s", "--silence", "0s")


def collected(lab, folder, dice):
    """Images are captured, removed and collected meanwhile: a session does not notice."""
    with lab.served(folder, server_mbit=1000, rate="8M") as site:
        clients = site.start(site.machines(3, 1000), "web")
        clients[0].machine.lose(2)
        clients[1].machine.deafen()
        for number in range(OTHERS):
            other = folder / "other"
            call(sys.executable, CLIENTS / "make_image.py", other, OTHER_MIB, dice.random())
            call(lab.onefold, "image", "capture", "--quiet", lab.archive, other, f"other-{number}")
            call(lab.onefold, "image", "rm", "--quiet", lab.archive, f"other-{number}@1")
            call(lab.onefold, "archive", "gc", "--quiet", *HASTE, lab.archive)
        if all(client.has_ended() for client in clients):
            raise Failed("the machines were done before the last collection")
        reports = site.finish(clients, 120)
        expect_multicast([reports[0], reports[2]], "machines beside a collection")


def removed(lab, folder, dice):
    """The image is removed meanwhile, and its content deleted: machines say so, or are done."""
    image = folder / "image"
    call(sys.executable, CLIENTS / "make_image.py", image, 96, dice.random())
    lab.capture(image, "removed")
    with lab.served(folder, server_mbit=1000, rate="5M") as site:
        clients = site.start(site.machines(2, 1000), "removed")
        clients[1].machine.deafen()
        clients[0].wait_to_write(dice.randint(4, 12) << 20, 60)
        call(lab.onefold, "image", "rm", "--quiet", lab.archive, "removed@1")
        call(lab.onefold, "archive", "gc", "--quiet", *HASTE, lab.archive)
        for client in clients:
            said = client.failure(90)
            if "removed" not in said:
                raise Failed(f"a machine does not say that the image was removed: {said}")
        # Others get their image as before.
        site.finish(site.start(site.machines(1, 1000)), 60)


def full_disk(lab, folder, _dice):
    """The disk of one machine is full half way: it says so, and the others do not notice."""
    with lab.served(folder, server_mbit=1000, rate="8M") as site:
        full, *others = site.machines(3, 1000)
        mount = folder / "full"
        mount.mkdir()
        # A file system of its own, which goes with the machine.
        script = 'mount -t tmpfs -o size=32M none "$0" && exec "$@"'
        before = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, mount)
        client = site.client(full, "web", mount / "disk", log=folder / "full.log", before=before).start()
        clients = site.start(others, "web")
        said = client.failure(60)
        if "space" not in said or "at byte" not in said or "of the image" not in said:
            raise Failed(f"a machine does not say that its disk is full, and where: {said}")
        expect_multicast(site.finish(clients, 60), "machines beside one whose disk is full")


def bucket(lab, folder, dice):
    """The archive's bucket does not answer for a minute: machines wait, and go on within five seconds."""
    with Network(Bridge()) as network:
        machine = network.machine(1000)
        with machine.started(sys.executable, S3, stdin=PIPE, stdout=PIPE, text=True) as store:
            options = ("--endpoint", store.stdout.readline().strip())
            image = lab.images["web"]
            for words in (("archive", "create", "--quiet", *options, BUCKET),
                          ("image", "capture", "--quiet", *options, BUCKET, image, "web")):  # fmt: skip
                machine.call(lab.onefold, *words, env=os.environ | KEYS)
            log = folder / "server.log"
            with Server(machine, lab.onefold, BUCKET, log, "8M", options=options, env=KEYS) as server, \
                    Site(lab, folder, network, server) as site:
                clients = site.start(site.machines(2, 1000), "web")
                clients[1].machine.deafen()
                clients[0].wait_to_write(dice.randint(4, 12) << 20, 60)
                store.send_signal(signal.SIGSTOP)
                time.sleep(MINUTE_S)
                store.send_signal(signal.SIGCONT)
                seconds = expect_progress(clients, "the bucket answered again")
                site.finish(clients, 120)
                lab.note(f"after a minute without the bucket machines went on after {seconds:.1f} s at most")
                server.stop()
