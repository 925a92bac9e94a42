"""Networks and machines that fail on one way only."""

import time

from cases.kills import expect_progress
from cases.links import expect_multicast
from programs import Failed

SMALL_MTU = 1300
SUSPENDED_S = 20


def no_requests(lab, folder, _dice):
    """The requests of one machine do not reach the server: it ends well over HTTP, and slows no other one."""
    with lab.served(folder, server_mbit=1000, rate="6M") as site:
        mute, other = site.machines(2, 1000)
        site.server.machine.drop(f"ip saddr {mute.address} ip protocol udp")
        for machine in (mute, other):
            machine.lose(1)
        clients = site.start([mute, other], "web")
        seconds = clients[0].wait_to_say("the server hears no request of this machine", 15)
        lab.note(f"without requests: over HTTP after {seconds:.0f} s")
        expect_multicast(site.finish(clients[1:], 60), "a machine beside one whose requests are lost")
        [report] = site.finish(clients[:1], 120)
        counts = report["multicast"]
        lab.note(f"without requests {counts['chunks']} chunks came by multicast and {counts['http_chunks']} over HTTP, "
                 f"in {clients[0].seconds:.0f} s; {clients[1].seconds:.0f} s with them")


def no_tcp(lab, folder, dice):
    """A machine whose TCP connections break goes on by multicast."""
    with lab.served(folder, server_mbit=1000, rate="6M") as site:
        [machine] = site.machines(1, 1000)
        [client] = site.start([machine], "web")
        client.wait_to_write(dice.randint(2, 10) << 20, 60)
        machine.drop("ip protocol tcp")
        expect_multicast(site.finish([client], 60), "a machine without TCP", 1)


def small_mtu(lab, folder, _dice):
    """A link that passes only small packets: its machine turns to HTTP, says why, and delays no other one."""
    with lab.served(folder, server_mbit=1000, rate="6M") as site:
        machines = site.machines(2, 1000)
        # TCP keeps to what the machine announces.
        machines[0].call("ip", "link", "set", "eth0", "mtu", SMALL_MTU)
        machines[0].drop(f"ip length > {SMALL_MTU}")
        clients = site.start(machines, "web")
        expect_multicast(site.finish(clients[1:], 60), "a machine beside one with small packets")
        seconds = clients[0].wait_to_say("Going on over HTTP", 60)
        # The server may notice the losses before the machine has waited long enough for a large packet. The reason is
        # the same.
        if not clients[0].says("arrives on eth0 in part"):
            raise Failed(f"a machine with small packets gives another reason: {clients[0].text()}")
        lab.note(f"with small packets: over HTTP after {seconds:.0f} s")
        site.finish(clients[:1], 120)


def suspended_server(lab, folder, dice):
    """The server is suspended, while its kernel goes on: machines wait, and go on within five seconds."""
    with lab.served(folder, server_mbit=1000, rate="6M") as site:
        clients = site.start(site.machines(3, 1000), "web")
        clients[2].machine.deafen()
        clients[0].wait_to_write(dice.randint(8, 24) << 20, 60)
        site.server.suspend()
        time.sleep(SUSPENDED_S)
        site.server.resume()
        seconds = expect_progress(clients, "the server was resumed")
        site.finish(clients, 180)
        lab.note(f"a server that was suspended for {SUSPENDED_S} s: machines went on after {seconds:.1f} s at most")


def cut_client(lab, folder, dice):
    """One machine's cable is unplugged for a minute: it goes on within five seconds, and slows no other one."""
    with lab.served(folder, server_mbit=1000, rate="6M") as site:
        clients = site.start(site.machines(3, 1000), "web")
        clients[0].wait_to_write(dice.randint(8, 24) << 20, 60)
        clients[0].machine.cut()
        since = time.monotonic()
        expect_multicast(site.finish(clients[1:], 60), "machines beside one without a cable")
        time.sleep(max(0, since + 60 - time.monotonic()))
        clients[0].machine.mend()
        seconds = expect_progress(clients[:1], "the cable was plugged in again")
        site.finish(clients[:1], 120)
        lab.note(f"a machine without a cable for a minute went on after {seconds:.1f} s")
