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
KILLS = 5
# What a client has handed over and the disk has not, and the ends of the disk, are fetched again.
LOST_BYTES_MAX = 8 << 20
# Units that are missing in part of their places only, and headers.
RECEIVED_BYTES_MORE = 4 << 20


def expect_progress(clients, what):
    """All clients that have not ended write more within five seconds. Returns how long that took."""
    before = {client: None if client.has_ended() else client.written() for client in clients}
    if not any(before.values()):
        raise Failed(f"all machines were done before {what}")
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
            time.sleep(dice.uniform(0.2, 2))
            site.server.kill()
            lab.counts["kills"] += 1
            time.sleep(dice.uniform(0.5, 2))
            site.server.start()
            if all(client.has_ended() for client in clients):
                break
            slowest = max(slowest, expect_progress(clients, "the server returned"))
        site.finish(clients, 120)
    lab.note(f"the server returned: machines went on after {slowest:.1f} s at most")


def killed_clients(lab, folder, dice):
    """Machines are killed at any moment, several times each: no wrong byte is on their disks, and they end well."""
    image = lab.images["small"]
    noise = folder / "noise"
    fill(noise, image.stat().st_size, dice)
    with lab.served(folder, server_mbit=1000, rate="8M") as site:
        clients = []
        for number, machine in enumerate(site.machines(4, 1000)):
            machine.lose(1)
            target = folder / f"killed-{number}"
            shutil.copyfile(noise, target)
            clients.append(site.client(machine, "small", target, options=("--json", "--force")).start())
        for _ in range(KILLS):
            for client in dice.sample(clients, len(clients)):
                time.sleep(dice.uniform(0, 0.8))
                lab.counts["kills"] += client.kill()
                expect_no_wrong_byte(client.target, image, noise)
                client.start()
        site.finish(clients, 120)


def continued(lab, folder, dice):
    """Machines are killed half way: another run finds on the disk what was written, and fetches the rest only."""
    image = lab.images["web"]
    size = image.stat().st_size
    with lab.served(folder, server_mbit=1000, rate="8M") as site:
        clients = []
        for number, machine in enumerate(site.machines(2, 1000)):
            target = folder / f"killed-{number}"
            fill(target, size, dice)
            clients.append(site.client(machine, "web", target, options=("--json", "--force")).start())
        written = {}
        for client in clients:
            client.wait_to_write(round(size * dice.uniform(0.2, 0.5)), 60)
            written[client] = client.written() or size
            lab.counts["kills"] += client.kill()
            client.start()
        for client, report in zip(clients, site.finish(clients, 120)):
            found, needed = report["found_bytes"], report["needed_bytes"]
            lab.note(f"killed after {written[client] >> 20} MiB were written: another run found {found >> 20} of "
                     f"{needed >> 20} MiB, and received {report['received_bytes'] >> 20} MiB")
            if found + report["written_bytes"] != needed:
                raise Failed(f"the bytes do not add up: {report}")
            if found < min(written[client], needed) - LOST_BYTES_MAX:
                raise Failed(f"{written[client]} bytes were written before the kill, and not found after it: {report}")
            if report["received_bytes"] > needed - found + RECEIVED_BYTES_MORE:
                raise Failed(f"more was fetched than what is missing: {report}")


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
