"""Links that lose packets, and links of different speeds."""

import time

from programs import Failed
from service import loss as lost
from service import multicast_share

MULTICAST_SHARE_MIN = 0.9
SLOW_MBIT = 10
# How long the first machines are left alone, and the server waits at most.
WAIT_S, AT_MOST_S = 5, 12
# Both ends of a disk are wiped before anything comes.
WAITING_BYTES_MAX = 4 << 20


def expect_multicast(reports, what, least=MULTICAST_SHARE_MIN):
    """Nearly all chunks came by multicast."""
    shares = [multicast_share(report) for report in reports]
    if min(shares) < least:
        raise Failed(f"{what}: only {min(shares):.0%} of the chunks came by multicast")


def loss(lab, folder, _dice):
    """Four machines install at once while each loses 0, 1 or 5 % of all packets by itself."""
    for percent in (0, 1, 5):
        with lab.served(folder, server_mbit=1000) as site:
            machines = site.machines(4, 1000)
            for machine in machines:
                machine.lose(percent)
            before = site.sent()
            reports = site.finish(site.start(machines), 60)
            expect_multicast(reports, f"{percent} % loss")
            measured = sum(map(lost, reports)) / len(reports)
            if abs(measured - percent / 100) > 0.01:
                raise Failed(f"{percent} % of the packets were to be lost, and {measured:.1%} were")
            payload = reports[0]["received_bytes"]
            lab.note(f"{percent} % loss: {(site.sent() - before) / payload:.2f} bytes sent for each byte of the image")


def bursts(lab, folder, dice):
    """Four machines install at once while each loses up to 100 packets in a row, again and again."""
    with lab.served(folder, server_mbit=1000) as site:
        machines = site.machines(4, 1000)
        for machine in machines:
            machine.lose_bursts(dice.randint(20, 100), dice.randint(2000, 5000))
        expect_multicast(site.finish(site.start(machines), 60), "bursts")


def rates(lab, folder, _dice):
    """Machines install over links of 100 Mbit/s to 1 Gbit/s that the server's rate nearly fills."""
    for mbit, rate in ((100, "10M"), (300, "30M"), (1000, "80M")):
        with lab.served(folder, server_mbit=mbit, rate=rate) as site:
            clients = site.start(site.machines(2, mbit))
            expect_multicast(site.finish(clients, 60), f"{mbit} Mbit/s")
            lab.note(f"{mbit} Mbit/s: {max(client.seconds for client in clients):.1f} s")


def sixteen(lab, folder, dice):
    """Sixteen machines that come one after the other install at once, and the image is sent less than three times."""
    with lab.served(folder, server_mbit=1000, rate="4M") as site:
        machines = site.machines(16, 1000)
        clients = []
        for machine in machines:
            machine.lose(dice.choice((0, 1, 2)))
            clients += site.start([machine])
        before = site.sent()
        reports = site.finish(clients, 120)
        expect_multicast(reports, "sixteen machines")
        sent = (site.sent() - before) / reports[0]["received_bytes"]
        lab.note(f"sixteen machines: {sent:.2f} bytes sent for each byte of the image")
        if sent > 3:
            raise Failed(f"{sent:.2f} bytes were sent for each byte of the image")


def slow_client(lab, folder, _dice):
    """A machine with a link of 10 Mbit/s does not slow three fast ones, and ends well."""
    seconds = []
    for slow in (False, True):
        with lab.served(folder, server_mbit=1000, rate="8M") as site:
            fast = site.start(site.machines(3, 1000))
            others = site.start(site.machines(1, SLOW_MBIT)) if slow else []
            site.finish(fast, 90)
            seconds.append(max(client.seconds for client in fast))
            site.finish(others, 300)
            if others:
                lab.note(f"fast machines: {seconds[0]:.1f} s alone, {seconds[1]:.1f} s beside one that took "
                         f"{others[0].seconds:.0f} s")
    if seconds[1] > 1.5 * seconds[0] + 2:
        raise Failed(f"the slow machine slowed the others: {seconds[1]:.1f} s instead of {seconds[0]:.1f} s")


def together(lab, folder, _dice):
    """A server that waits for three machines begins with the third one, or once it has waited long enough."""
    options = ("--wait-for", 3, "--at-most", f"{AT_MOST_S}s")
    for count in (3, 2):
        with lab.served(folder, server_mbit=1000, options=options) as site:
            machines = site.machines(count, 1000)
            clients = site.start(machines[:2])
            time.sleep(WAIT_S)
            if any((client.written() or 0) > WAITING_BYTES_MAX for client in clients):
                raise Failed("a machine did not wait for the others")
            clients += site.start(machines[2:])
            expect_multicast(site.finish(clients, 60), f"{count} machines that begin together")
            seconds = max(client.seconds for client in clients[:2])
            lab.note(f"{count} of 3 machines: done after {seconds:.1f} s")
            if count < 3 and seconds < AT_MOST_S:
                raise Failed(f"two machines did not wait for {AT_MOST_S} s")
