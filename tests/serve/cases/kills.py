"""Servers, clients and networks that stop at any moment, and go on."""

import shutil
import time

from cases.links import expect_multicast
from programs import Failed
from service import expect_no_wrong_byte, fill

CONTINUE_S = 5
# Threads that wake each other write a few bytes, too.
PROGRESS_BYTES = 256 << 10
MINUTE_S = 60
KILLS = 3
# What a client has in memory when it is killed, and the ends of the disk, are fetched again.
LOST_BYTES_MAX = 40 << 20


def expect_progress(clients, what):
    """All clients that have not ended write more within five seconds. Returns how long that took."""
    before = {client: client.written() for client in clients}
    began = time.monotonic()
    for client, written in before.items():
        if written is not None:
            client.wait_to_write(written + PROGRESS_BYTES, max(0, began + CONTINUE_S - time.monotonic()), what)
    return time.monotonic() - began


def killed_server(lab, folder, dice):
    """The server is killed at any moment, again and again: machines go on within five seconds of its return."""
    slowest = 0
    with lab.served(folder, server_mbit=1000, rate="6M") as site:
        clients = site.start(site.machines(3, 1000), "web")
        for client in clients:
            client.machine.lose(1)
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.2, 4))
            site.server.kill()
            time.sleep(dice.uniform(0.5, 3))
            site.server.start()
            slowest = max(slowest, expect_progress(clients, "the server returned"))
            lab.counts["kills"] += 1
        site.finish(clients, 120)
    lab.note(f"the server returned: machines went on after {slowest:.1f} s at most")


def killed_clients(lab, folder, dice):
    """Machines are killed at any moment: no wrong byte is on their disks, and another run fetches what is missing."""
    image = lab.images["web"]
    size = image.stat().st_size
    noise = folder / "noise"
    fill(noise, size, dice)
    with lab.served(folder, server_mbit=1000, rate="8M") as site:
        clients = []
        for number, machine in enumerate(site.machines(3, 1000)):
            machine.lose(1)
            target = folder / f"killed-{number}"
            shutil.copyfile(noise, target)
            clients.append(site.client(machine, "web", target, options=("--json", "--force")))
        for client in clients:
            client.start()
        written = {}
        for client in clients:
            client.wait_to_write(round(size * dice.uniform(0.05, 0.4)), 60)
            written[client] = client.written() or size
            client.kill()
            lab.counts["kills"] += 1
            expect_no_wrong_byte(client.target, image, noise)
        for client in clients:
            client.start()
        reports = site.finish(clients, 120)
        for client, report in zip(clients, reports):
            if report["found_bytes"] + report["written_bytes"] != report["needed_bytes"]:
                raise Failed(f"the bytes do not add up: {report}")
            lab.note(f"killed after {written[client] >> 20} MiB were written: another run found "
                     f"{report['found_bytes'] >> 20} of {report['needed_bytes'] >> 20} MiB, and received "
                     f"{report['received_bytes'] >> 20} MiB")
            if report["found_bytes"] < min(written[client], report["needed_bytes"]) - LOST_BYTES_MAX:
                raise Failed(f"{written[client]} bytes were written before the kill, and not found after it: {report}")


def suspended(lab, folder, dice):
    """A machine that is suspended for a minute slows no other one, and goes on."""
    with lab.served(folder, server_mbit=1000, rate="6M") as site:
        clients = site.start(site.machines(3, 1000), "web")
        clients[0].wait_to_write(dice.randint(8, 24) << 20, 60)
        clients[0].suspend()
        since = time.monotonic()
        expect_multicast(site.finish(clients[1:], 60), "machines beside one that is suspended")
        time.sleep(max(0, since + MINUTE_S - time.monotonic()))
        clients[0].resume()
        seconds = expect_progress(clients[:1], "the machine was resumed")
        site.finish(clients[:1], 180)
        lab.note(f"a machine that was suspended for a minute went on after {seconds:.1f} s")


def no_network(lab, folder, dice):
    """The server's cable is unplugged for a minute: machines go on within five seconds of its return."""
    with lab.served(folder, server_mbit=1000, rate="6M") as site:
        clients = site.start(site.machines(3, 1000), "web")
        clients[0].wait_to_write(dice.randint(8, 24) << 20, 60)
        site.server.machine.cut()
        time.sleep(MINUTE_S)
        site.server.machine.mend()
        seconds = expect_progress(clients, "the network returned")
        site.finish(clients, 120)
        lab.note(f"after a minute without network machines went on after {seconds:.1f} s at most")
