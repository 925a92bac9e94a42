"""Machines in network namespaces of their own, and a bridge or a switch between them in one more.

    with Network(Bridge()) as network:
        server, client = network.machine(), network.machine(rate_mbit=100)
        client.lose(percent=2)
        server.call("curl", f"http://{client.address}/")

Nothing is left when the process ends, not even after a `kill -9`: the kernel ends all processes of the machines with
it, each namespace with its last process, and each device with its namespace. The host's own namespace is not touched.
Machines are made, and programs on them started, by the main thread: the kernel looks at the end of the thread.
"""

import enum
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

from programs import HERE, Failed, call, run, started, wait_until

# No namespace lives longer.
HOLDER_S = 4 * 3600
BEGIN_S = 10
# What a switch port or an interface keeps while its link is busy.
QUEUE_MS = 20
BURST_BYTES_MIN = 16 << 10
# Hundredths of a second: a port is forgotten after five seconds without an answer.
SNOOPING = (
    "mcast_snooping", 1, "mcast_membership_interval", 500, "mcast_querier", 0, "mcast_query_interval", 100,
    "mcast_query_response_interval", 50, "mcast_startup_query_interval", 100,
)  # fmt: skip
GROUPS = "ip daddr 239.0.0.0/8"
MACHINES_MAX = 250


class Namespace:
    """A network namespace, which ends with this object, or with the process."""

    def __init__(self):
        self.closing = ExitStack()
        words = (*ended_with_parent(), "unshare", "--net", "sleep", HOLDER_S)
        self.holder = self.closing.enter_context(started(words))
        self.path = f"/proc/{self.holder.pid}/ns/net"
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: self.is_other(own), BEGIN_S, "a namespace begins")
        self.call("ip", "link", "set", "lo", "up")

    def is_other(self, own):
        if self.holder.poll() is not None:
            raise Failed("no network namespace can be made here")
        return os.readlink(self.path) != own

    def close(self):
        self.closing.close()

    def words(self, *command):
        """Returns the command line of a command in this namespace. The process that it starts becomes the command."""
        return [*ended_with_parent(), "nsenter", f"--net={self.path}", *map(str, command)]

    def call(self, *command, **options):
        """Runs a command that must succeed, and returns what it printed."""
        return call(*self.words(*command), **options)

    def run(self, *command, **options):
        """Runs a command to its end, and returns its exit code and what it printed."""
        return run(self.words(*command), **options)

    def started(self, *command, **options):
        """Has a command run until the `with` ends."""
        return started(self.words(*command), **options)


class Machine(Namespace):
    """A machine with one interface, `eth0`."""

    def __init__(self, fabric, number):
        super().__init__()
        self.fabric, self.number, self.address = fabric, number, f"192.0.2.{number}"

    def up(self, rate_mbit, is_segmented):
        self.call("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        if is_segmented:
            # Otherwise up to 64 packets pass as one, and are lost as one.
            self.call("ip", "link", "set", "eth0", "gso_max_segs", 1)
        self.call("ip", "link", "set", "eth0", "up")
        if rate_mbit:
            limit_rate(self, "eth0", rate_mbit)

    def drop(self, *conditions):
        """Has the machine drop arriving packets that meet one of these conditions of nft, and no others."""
        rules = "".join(f"add rule ip weather in {condition} drop; " for condition in conditions)
        chain = "add chain ip weather in { type filter hook input priority 0; }; "
        self.call("nft", f"add table ip weather; delete table ip weather; add table ip weather; {chain}{rules}")

    def lose(self, percent):
        """Loses such a part of all arriving packets, each by itself."""
        self.drop(f"numgen random mod 1000 < {round(percent * 10)}")

    def lose_bursts(self, length, every):
        """Loses the last `length` packets of `every` that arrive."""
        self.drop(f"numgen inc mod {every} >= {every - length}")

    def deafen(self):
        """Loses all packets to groups."""
        self.drop(GROUPS)

    def hear(self):
        """Loses nothing more."""
        self.drop()

    def cut(self):
        """Pulls the cable."""
        self.fabric.cut(self.number)

    def mend(self):
        """Plugs the cable in again."""
        self.fabric.mend(self.number)

    def traffic(self):
        """Returns how many bytes have arrived and how many were sent since the beginning."""
        text = Path(f"/proc/{self.holder.pid}/net/dev").read_text(encoding="ascii")
        counts = text.partition("eth0:")[2].split()
        return int(counts[0]), int(counts[8])


class Network:
    """Machines that share one fabric, a `Bridge` or a `RoughSwitch`."""

    def __init__(self, fabric, is_segmented=True):
        # With `is_segmented` each packet is one of its own; without it, offloads join packets, which saves processor.
        self.fabric, self.is_segmented = fabric, is_segmented
        self.machines, self.closing = [], ExitStack()

    def __enter__(self):
        with ExitStack() as stack:
            stack.enter_context(self.fabric)
            self.closing = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.closing.close()

    def machine(self, rate_mbit=None):
        """Makes one more machine, with a link of this rate in both directions."""
        number = len(self.machines) + 1
        if number > MACHINES_MAX:
            raise Failed("there are no more addresses")
        machine = Machine(self.fabric, number)
        self.closing.callback(machine.close)
        self.fabric.plug(machine, rate_mbit)
        machine.up(rate_mbit, self.is_segmented)
        self.machines.append(machine)
        return machine


class Snooping(enum.Enum):
    """What a bridge does with packets to groups."""

    # It sends them to all ports.
    OFF = enum.auto()
    # It sends them to ports that asked for them, and forgets ports within seconds, as nobody makes them ask again.
    ALONE = enum.auto()
    # It makes them ask again itself, every second.
    QUERIER = enum.auto()


class Bridge:
    """A bridge, to which machines are connected by veth pairs."""

    def __init__(self, snooping=Snooping.OFF):
        self.snooping = snooping
        self.space = None

    def __enter__(self):
        self.space = Namespace()
        with ExitStack() as stack:
            stack.callback(self.space.close)
            settings = ("mcast_snooping", 0) if self.snooping is Snooping.OFF else SNOOPING
            self.space.call("ip", "link", "add", "br0", "type", "bridge", *settings)
            self.space.call("ip", "link", "set", "br0", "up")
            if self.snooping is Snooping.QUERIER:
                # By itself: until the answers to its first query are due, a bridge sends to all ports.
                self.space.call("ip", "link", "set", "br0", "type", "bridge", "mcast_querier", 1)
            stack.pop_all()
        return self

    def __exit__(self, *_):
        self.space.close()

    def plug(self, machine, rate_mbit):
        port = f"p{machine.number}"
        peer = ("peer", "name", "eth0", "netns", machine.holder.pid)
        self.space.call("ip", "link", "add", port, "type", "veth", *peer)
        self.space.call("ip", "link", "set", port, "master", "br0", "up")
        if rate_mbit:
            limit_rate(self.space, port, rate_mbit)

    def cut(self, number):
        self.space.call("ip", "link", "set", f"p{number}", "down")

    def mend(self, number):
        self.space.call("ip", "link", "set", f"p{number}", "up")


class RoughSwitch:
    """A switch that delays, reorders, repeats and loses frames, as the words for `switch.py` say. It limits no rate."""

    def __init__(self, ports, *words):
        self.ports, self.arguments = ports, words
        self.space, self.process = None, None

    def __enter__(self):
        self.space = Namespace()
        command = self.space.words(sys.executable, HERE / "switch.py", self.ports, *self.arguments)
        self.process = self.space.closing.enter_context(started(command, stdin=PIPE, stdout=PIPE, text=True))
        if self.process.stdout.readline() != "ready\n":
            self.space.close()
            raise Failed("the switch does not begin: this machine has no TAP devices")
        return self

    def __exit__(self, *_):
        self.space.close()

    def plug(self, machine, rate_mbit):
        # The device belongs to its descriptor, wherever it is.
        target = ("netns", machine.holder.pid, "name", "eth0")
        self.space.call("ip", "link", "set", f"tap{machine.number}", *target)

    def told(self):
        """Ends the switch, and returns what it has done, by kind."""
        self.process.stdin.close()
        return self.process.stdout.read().strip()


def limit_rate(space, device, rate_mbit):
    """Limits what leaves by a device."""
    burst = max(BURST_BYTES_MIN, round(rate_mbit * 1e6 / 8 * 0.002))
    space.call("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{rate_mbit}mbit", "burst", burst,
               "latency", f"{QUEUE_MS}ms")  # fmt: skip


def ended_with_parent():
    """Returns the beginning of a command line of a process that does not outlive this one.

    If this process has ended before the kernel knew that, the command is not run at all.
    """
    return ("setpriv", "--pdeathsig", "KILL", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid()))
