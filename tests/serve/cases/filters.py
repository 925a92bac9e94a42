"""Networks in which multicast does not reach every machine, or not for long, and two servers in one network."""

import sys

from cases.links import expect_multicast
from network import Bridge, Snooping
from programs import HERE, Failed
from service import Server

HTTP_S = 4


def filtered(lab, folder, _dice):
    """A machine that no multicast reaches turns to HTTP within four seconds, says so, and returns once it arrives."""
    with lab.served(folder, server_mbit=100, rate="8M") as site:
        [machine] = site.machines(1, 100)
        machine.deafen()
        [client] = site.start([machine], "web")
        text = f"multicast from {site.server.machine.address} to 239.192.3.7 does not arrive on eth0: " \
               "is there an IGMP querier?"
        lab.note(f"without multicast: over HTTP after {client.wait_to_say(text, HTTP_S):.1f} s")
        client.wait_to_write(16 << 20, 30)
        machine.hear()
        client.wait_to_say("arrives again", 30)
        [report] = site.finish([client], 90)
        counts = report["multicast"]
        if not (counts["chunks"] and counts["http_chunks"]):
            raise Failed(f"chunks came on one way only: {counts}")


def two_servers(lab, folder, _dice):
    """Two servers in one network, one of them without TLS, send to the same group and port at once."""
    key = folder / "key"
    key.touch(0o600)
    key.write_text(f"{7:064d}\n", encoding="ascii")
    with lab.served(folder, server_mbit=1000, rate="8M") as site:
        [machine] = site.machines(1, 1000)
        with Server(machine, lab.onefold, lab.archive, folder / "plain.log", rate="8M", key=key) as plain:
            clients = site.start(site.machines(2, 1000), "web")
            clients += site.start(site.machines(2, 1000), "small", server=plain)
            expect_multicast(site.finish(clients, 90), "two servers")
            plain.stop()


def querier(lab, folder, _dice):
    """A snooping bridge whose querier asks sends the group to machines that listen, for as long as they do."""
    with lab.served(folder, Bridge(Snooping.QUERIER), server_mbit=1000, rate="6M") as site:
        [bystander] = site.machines(1, 1000)
        reports = site.finish(site.start(site.machines(3, 1000), "web"), 90)
        expect_multicast(reports, "a snooping bridge with a querier")
        came = bystander.traffic()[0] / reports[0]["received_bytes"]
        lab.note(f"a machine that does not listen got {came:.0%} of the packets")
        if came > 0.2:
            raise Failed(f"a machine that does not listen got {came:.0%} of the packets")


def no_querier(lab, folder, _dice):
    """A snooping bridge that nobody asks forgets machines within seconds: they turn to HTTP, and end well."""
    with lab.served(folder, Bridge(Snooping.ALONE), server_mbit=1000, rate="6M") as site:
        [router] = site.machines(1, 1000)
        # Since it has once seen a querier, the bridge sends groups only to ports that have answered.
        router.call(sys.executable, HERE / "query.py", router.address)
        clients = site.start(site.machines(2, 1000), "web")
        for client in clients:
            client.wait_to_say("has fallen silent on eth0", 30)
        reports = site.finish(clients, 120)
        counts = [report["multicast"] for report in reports]
        if not all(count["chunks"] and count["http_chunks"] for count in counts):
            raise Failed(f"chunks came on one way only: {counts}")
