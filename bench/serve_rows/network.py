"""Machines of a network, as tests/serve makes them, with what a benchmark counts there."""

import shutil
import subprocess
import sys
import time
from contextlib import ExitStack

from lib import system
from lib.programs import REPOSITORY
from lib.system import BenchError

# Behind this program's own folder.
sys.path.append(str(REPOSITORY / "tests" / "serve"))
# pylint: disable=wrong-import-position
import network as spaces  # noqa: E402
from programs import Failed  # noqa: E402

PROGRAMS = ("ip", "unshare", "nsenter", "nft", "tc", "setpriv")
SERVER = 1
# Of Ethernet in the namespaces.
INTERFACE = "eth0"
START_SECONDS_MAX = 10
# Groups of multicast of all programs.
GROUPS = "224.0.0.0/4"
# Shorter packets are no data: beacons, requests, acknowledgements.
DATA_BYTES_MIN = 700
MEGA = 10**6


def why_none():
    """Returns why this machine makes no networks; None where it does."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"there is no {' and no '.join(missing)}"
    words = ("unshare", "--net", "ip", "link", "add", "br0", "type", "bridge")
    tried = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return None if tried.returncode == 0 else "this machine makes no bridges in namespaces"


class Network:
    """Machine 1 is the server, machines from 2 on are clients; the link of the server may be limited."""

    def __init__(self, clients, bits_per_second=None, loss=0.0):
        self.clients = range(SERVER + 1, SERVER + 1 + clients)
        self._machines, self._closing = {}, ExitStack()
        try:
            self._make(bits_per_second, loss)
        except Failed as error:
            self.close()
            raise BenchError(str(error)) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._closing.close()

    def at(self, number):
        """Returns the words that run a command on a machine."""
        return tuple(self._machines[number].words())

    def run(self, number, *words):
        """Runs a command on a machine to its end."""
        return system.run(*self.at(number), *words)

    def hear_nothing(self, number):
        """Has a machine drop all packets to groups."""
        self._machines[number].drop(f"ip daddr {GROUPS}")

    def sent_data(self):
        """Returns packets and bytes of IP of the data that came to a client from the server by multicast."""
        return self._counter(self.clients[0], "data")

    def requests(self):
        """Returns how many datagrams have come to the server."""
        return self._counter(SERVER, "requests")[0]

    def _counter(self, number, name):
        words = self.run(number, "nft", "list", "counter", "ip", "bench", name).text.split()
        return int(words[words.index("packets") + 1]), int(words[words.index("bytes") + 1])

    def _make(self, bits_per_second, loss):
        # Packets are joined as on any machine: processor time counts. But each is lost by itself.
        network = self._closing.enter_context(spaces.Network(spaces.Bridge(), is_segmented=loss > 0))
        for number in (SERVER, *self.clients):
            rate = bits_per_second / MEGA if bits_per_second and number == SERVER else None
            machine = self._machines[number] = network.machine(rate)
            # Programs that name no interface find the groups by it.
            self.run(number, "ip", "route", "add", GROUPS, "dev", INTERFACE)
            self.run(number, "nft", COUNTERS)
            if loss and number != SERVER:
                machine.drop(lost(loss))


# Before anything is lost.
COUNTERS = (
    "add table ip bench; add counter ip bench data; add counter ip bench requests;"
    "add chain ip bench first { type filter hook prerouting priority -300; };"
    f"add rule ip bench first ip daddr {GROUPS} ip length >= {DATA_BYTES_MIN} counter name data;"
    "add rule ip bench first ip daddr 192.0.2.0/24 ip protocol udp counter name requests;"
)


def lost(part):
    """Returns which packets to groups are lost at a machine, as a condition of nft."""
    return f"ip daddr {GROUPS} numgen random mod 10000 < {round(part * 10000)}"


def address(number):
    """Returns the address of a machine."""
    return f"192.0.2.{number}"


def wait_until(is_so, why_not, seconds=START_SECONDS_MAX):
    """Waits until something is so. Raises BenchError where that takes too long."""
    ends = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > ends:
            raise BenchError(why_not)
        time.sleep(0.01)
