"""Other programs that send one file to many machines: udpcast and UFTP."""

import shlex
import time
from dataclasses import dataclass, replace

from guest_rows.programs import timed
from lib.rows.beside import lacking
from lib.system import BenchError

from .child import Child, wait_all
from .network import INTERFACE, SERVER, address

UDPCAST, UNPACED, UFTP = "udpcast", "udpcast, unpaced", "uftp"
NEEDED = ("udp-sender", "udp-receiver", "uftp", "uftpd")
# How long receivers get to begin before the sender does.
HEAD_START_SECONDS = 0.5
SECONDS_MAX = 60
# Where sender and receivers of udpcast find each other. Its own 224.0.0.1 does not reach them on these machines.
RENDEZVOUS = "239.192.4.2"


@dataclass(frozen=True)
class Sent:
    """What sending a file took, from the start of the sender to the end of the last receiver."""

    seconds: float
    sender_cpu_seconds: float
    receiver_cpu_seconds: float


class Udpcast:
    """udp-sender and udp-receiver, at a rate or as fast as they go."""

    name = UDPCAST
    # Part of a data packet's bytes behind the header of UDP that are the file's.
    payload_part = 1456 / 1472

    def __init__(self, network, bits_per_second=None):
        self.network, self.bits_per_second = network, bits_per_second

    def send(self, file, targets, behind=""):
        """Sends a file to a target on each machine. A script `behind` takes what comes, in place of a file {target}."""
        receive = f"udp-receiver --nokbd --interface {INTERFACE} --mcast-rdv-address {RENDEZVOUS}"
        receivers = []
        for number, target in zip(self.network.clients, targets):
            quoted = shlex.quote(str(target))
            keep = behind.format(target=quoted) if behind else f"--file {quoted}"
            script = f"{receive} {keep}" + ("" if str(target).startswith("/dev/") else f" && sync {quoted}")
            receivers.append(Child(*self.network.at(number), "bash", "-o", "pipefail", "-ec", script))
        pace = ("--max-bitrate", f"{int(self.bits_per_second) // 1000}k") if self.bits_per_second else ()
        groups = ("--mcast-rdv-address", RENDEZVOUS, "--mcast-data-address", "239.192.4.1")
        # To one machine alone it would not send by multicast.
        words = ("udp-sender", "--nokbd", "--nopointopoint", "--interface", INTERFACE, *groups)
        # Otherwise it calls once, and a receiver that does not hear it waits for ever.
        words = (*words, "--rexmit-hello-interval", "200", "--file", file, "--min-receivers", str(len(targets)), *pace)
        return run(self.network, receivers, words)


class Uftp:
    """uftp and a uftpd on each machine."""

    name = UFTP
    payload_part = 1300 / 1324

    def __init__(self, network, bits_per_second):
        self.network, self.bits_per_second = network, bits_per_second

    def send(self, file, targets):
        """Sends a file to a folder on each machine."""
        receivers, numbers = [], list(self.network.clients)[: len(targets)]
        for number, target in zip(numbers, targets):
            target.mkdir(exist_ok=True)
            words = ("uftpd", "-d", "-I", INTERFACE, "-M", "239.192.5.1", "-D", target, "-U", identity(number))
            receivers.append(Child(*self.network.at(number), *words))
        rate = str(int(self.bits_per_second) // 1000)
        groups = ("-M", "239.192.5.1", "-P", "239.192.5.2")
        hosts = ("-H", ",".join(identity(number) for number in numbers))
        words = ("uftp", "-q", "-I", INTERFACE, *groups, "-R", rate, *hosts, file)
        sent = run(self.network, receivers, words, are_daemons=True)
        # The daemons leave that to the kernel.
        flushed = timed("sync", *(target / file.name for target in targets))
        return replace(sent, seconds=sent.seconds + flushed.seconds)


def identity(number):
    """Returns how uftp calls a machine."""
    return f"0x{int.from_bytes(bytes(map(int, address(number).split('.'))), 'big'):08X}"


def run(network, receivers, words, are_daemons=False):
    """Runs a sender beside its receivers; daemons do not end by themselves."""
    try:
        time.sleep(HEAD_START_SECONDS)
        for receiver in receivers:
            if receiver.poll():
                receiver.took()
                raise BenchError("a receiver has ended before the sender began")
        sender = Child(*network.at(SERVER), *words)
        if are_daemons:
            took = wait_all([sender], SECONDS_MAX)[0]
            return Sent(took.seconds, took.cpu_seconds, 0.0)
        took, *others = wait_all([sender, *receivers], SECONDS_MAX)
        ended = max(receiver.started + other.seconds for receiver, other in zip(receivers, others))
        seconds = max(took.seconds, ended - sender.started)
        return Sent(seconds, took.cpu_seconds, sum(other.cpu_seconds for other in others))
    finally:
        for receiver in receivers:
            receiver.kill()


def why_none():
    """Returns which of the programs are missing; None where all are there."""
    return lacking(NEEDED)
