"""One stream to several machines: how much of the link it takes, what it sends again, and what that costs."""

from image_rows.line import ImageLine
from image_rows.stored import smaller
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, alternating
from lib.runner import say
from lib.system import BenchError

from .images import NOISE, SHORT
from .machines import install_all, server
from .network import Network
from .peers import UDPCAST, UFTP, UNPACED, Udpcast, Uftp, why_none
from .row import ServeRow

# Onefold without repair symbols: what machines lack is sent again, by their bitmaps.
BITMAPS = "onefold, bitmaps"
MB = 10**6
# Part of a datagram's bytes behind the header of UDP that are a symbol's: docs/format/multicast.md.
PAYLOAD_PART = 1428 / 1472
UDP_HEADERS_BYTES = 28
# Of a link's rate: what a program may send without filling the queue of the link, headers of Ethernet left out.
PACED_PART = 0.95
LOSSES = (0.0, 0.01, 0.05)
# How long Onefold waits for machines that do not come.
WAIT = "30s"


def percent(loss):
    return f"{loss:.0%}".removesuffix("%")


def payload_sent(network, part):
    """Returns the bytes of content that data packets have carried to the group so far."""
    packets, total = network.sent_data()
    return (total - packets * UDP_HEADERS_BYTES) * part


def http_bytes(installed, payload):
    """Returns about how many bytes of content a machine has fetched over HTTP, by the number of its chunks."""
    told = installed.told["multicast"]
    return payload * told["http_chunks"] / max(1, told["http_chunks"] + told["chunks"])


def rate_of(bits_per_second):
    """Returns the argument of `--rate` for a link."""
    return str(int(bits_per_second / 8 * PACED_PART))


class PayloadRow(ServeRow):
    """Two machines, no loss, a link of 1 Gbit/s."""

    name = "payload"
    sides = (ONEFOLD, UDPCAST, UFTP, UNPACED)
    share_of_time = 2.0
    needs_network = True
    clients = 2

    def make_lines(self, settings):
        title = f"multicast to {self.clients} machines, 1 Gbit/s: content / link"
        yield ImageLine("payload-link", title, "%", bound=85, aim=92)
        title = "content a second, from the start to the last flush"
        yield ImageLine("payload", title, "MB/s", bound=1.0, aim=1.0, beside="udpcast and UFTP")
        yield smaller("payload-again", "bytes sent again without loss", "%", 0.5, 0.1, negligible=0.5)

    def measure(self, images, settings, round_no):
        for side in alternating(round_no, *sides_of(self.sides)):
            sent = try_to_send(images, settings, side, Stream(NOISE, self.clients, settings.link_bits))
            if sent is None:
                continue
            yield "payload", side, Sample(sent.payload / MB / sent.seconds)
            yield "payload-again", side, Sample(100 * max(0.0, sent.factor - 1))
            if side == ONEFOLD:
                rate = sent.payload * 8 / sent.seconds
                yield "payload-link", side, Sample(100 * rate / settings.link_bits)


class LossRow(ServeRow):
    """Many machines, each of which loses packets of its own."""

    name = "loss"
    sides = (ONEFOLD, BITMAPS, UDPCAST, UFTP)
    share_of_time = 4.0
    needs_network = True
    GOALS = {0.0: (None, None), 0.01: (1.04, 1.025), 0.05: (1.12, 1.08)}

    def make_lines(self, settings):
        for loss in LOSSES:
            title = f"bytes sent / content, {settings.clients} machines with independent loss of {percent(loss)} %"
            yield smaller(f"loss-{percent(loss)}", title, "x", *self.GOALS[loss])
            title = f"requests a second at the server, loss of {percent(loss)} %"
            yield smaller(f"requests-{percent(loss)}", title, "per s", None, None)

    def measure(self, images, settings, round_no):
        for loss in LOSSES:
            for side in alternating(round_no, *sides_of(self.sides)):
                stream = Stream(SHORT, settings.clients, settings.many_bits, loss, begins_together=True)
                sent = try_to_send(images, settings, side, stream)
                if sent is None:
                    continue
                yield f"loss-{percent(loss)}", side, Sample(sent.factor)
                yield f"requests-{percent(loss)}", side, Sample(sent.requests / sent.seconds)


class ManyLossRow(ServeRow):
    """Fewer machines that lose packets: LossRow has the most of them."""

    name = "loss-machines"
    sides = LossRow.sides
    share_of_time = 2.0
    needs_network = True
    LOSS = 0.01

    def make_lines(self, settings):
        for count in self.counts(settings):
            machines = f"{count} machine{'s' if count > 1 else ''} with independent loss of {percent(self.LOSS)} %"
            yield smaller(f"loss-machines-{count}", f"bytes sent / content, {machines}", "x", None, None)
            title = f"requests a second at the server, {machines}"
            yield smaller(f"requests-machines-{count}", title, "per s", None, None)

    @staticmethod
    def counts(settings):
        return [count for count in settings.client_counts if count < settings.clients]

    def measure(self, images, settings, round_no):
        for count in self.counts(settings):
            for side in alternating(round_no, *sides_of(self.sides)):
                stream = Stream(SHORT, count, settings.many_bits, self.LOSS, begins_together=True)
                sent = try_to_send(images, settings, side, stream)
                if sent is not None:
                    yield f"loss-machines-{count}", side, Sample(sent.factor)
                    yield f"requests-machines-{count}", side, Sample(sent.requests / sent.seconds)


class CpuRow(ServeRow):
    """Processor time of both sides at one rate, beside udpcast."""

    name = "cpu"
    sides = (ONEFOLD, UDPCAST)
    needs_network = True

    def make_lines(self, settings):
        title = "processor time to send a GB by multicast"
        yield smaller("cpu-sender", title, "s", 0.7, 0.35, beside="udpcast at the same rate")
        title = "to receive it: the receiving thread"
        yield smaller("cpu-receiver", title, "s", 0.7, 0.35, beside="udpcast at the same rate, to /dev/null")

    def missing(self, settings):
        return super().missing(settings) or why_none()

    def measure(self, images, settings, round_no):
        for side in alternating(round_no, *self.sides):
            sent = send(images, settings, side, Stream(NOISE, 2, settings.cpu_bits, is_kept=False))
            gigabytes = sent.payload / 10**9
            yield "cpu-sender", side, Sample(sent.sender_cpu_seconds / gigabytes)
            yield "cpu-receiver", side, Sample(sent.receiver_cpu_seconds / 2 / gigabytes)


class GrowthRow(ServeRow):
    """What more machines cost the server."""

    name = "growth"
    sides = (ONEFOLD, "one machine")
    needs_network = True

    def make_lines(self, settings):
        title = f"processor time of the server, {settings.clients} machines"
        yield smaller("growth-cpu", title, "s", 1.3, 1.1, beside="one machine")
        yield smaller("growth-requests", "its requests a second", "per s", 1.3, 1.1, beside="one machine")

    def measure(self, images, settings, round_no):
        for side, clients in alternating(round_no, (ONEFOLD, settings.clients), ("one machine", 1)):
            stream = Stream(SHORT, clients, settings.many_bits, begins_together=True)
            sent = send(images, settings, ONEFOLD, stream)
            yield "growth-cpu", side, Sample(sent.sender_cpu_seconds)
            yield "growth-requests", side, Sample(sent.requests / sent.seconds)


class Stream:
    """A stream to some machines over a link, with loss at each machine."""

    def __init__(self, name, clients, bits_per_second, loss=0.0, is_kept=True, begins_together=False):
        self.name, self.clients, self.bits_per_second = name, clients, bits_per_second
        # Whether the other programs write what they receive.
        self.loss, self.is_kept = loss, is_kept
        # Whether Onefold waits for all machines, as the other programs do in any case.
        self.begins_together = begins_together

    def options(self):
        """Returns what Onefold's server is told."""
        wait = ("--wait-for", str(self.clients), "--at-most", WAIT)
        return wait if self.begins_together else ()


class StreamSent:
    """What a stream took."""

    def __init__(self, payload, sent_bytes, seconds, requests, cpu_seconds):
        self.payload, self.seconds, self.requests = payload, seconds, requests
        self.factor = sent_bytes / payload
        self.sender_cpu_seconds, self.receiver_cpu_seconds = cpu_seconds


def sides_of(sides):
    """Returns those sides whose programs are there."""
    return sides if why_none() is None else tuple(side for side in sides if side in (ONEFOLD, BITMAPS))


def try_to_send(images, settings, side, stream):
    """As `send`; None where another program fails, which then has no figure."""
    try:
        return send(images, settings, side, stream)
    except BenchError as error:
        if side in (ONEFOLD, BITMAPS):
            raise
        say(f"  {side} left out: {error}")
        images.drop_targets()
        return None


def send(images, settings, side, stream):
    """Sends noise to the machines of a stream, by the program of a side."""
    with Network(stream.clients, stream.bits_per_second, stream.loss) as network:
        if side in (ONEFOLD, BITMAPS):
            options = ("--repairs", "bitmaps") if side == BITMAPS else ()
            return by_onefold(images, network, stream, options)
        peer = peer_of(side, network, stream)
        images.ensure_archive()
        file = images.path(stream.name)
        targets = [images.targets / f"{peer.name}-{number}" for number in network.clients]
        sent = peer.send(file, targets if stream.is_kept else ["/dev/null"] * len(targets))
        for target in targets if stream.is_kept else ():
            images.expect_same(target / file.name if target.is_dir() else target, file)
        images.drop_targets()
        carried = payload_sent(network, peer.payload_part)
        cpu = (sent.sender_cpu_seconds, sent.receiver_cpu_seconds)
        return StreamSent(file.stat().st_size, carried, sent.seconds, network.requests(), cpu)


def peer_of(side, network, stream):
    """Returns a peer at the rate of the stream."""
    paced = stream.bits_per_second * PACED_PART
    if side == UFTP:
        return Uftp(network, paced)
    return Udpcast(network, paced if side == UDPCAST else None)


def by_onefold(images, network, stream, options=()):
    payload = images.list_of(stream.name)["bytes"]
    with server(images, network, rate_of(stream.bits_per_second), (*options, *stream.options())) as serving:
        installed = install_all(images, serving, network, stream.name)
        cpu = serving.cpu_seconds(), sum(one.receiver_seconds for one in installed)
    images.drop_targets()
    seconds = max(one.seconds for one in installed)
    carried = payload_sent(network, PAYLOAD_PART) + sum(http_bytes(one, payload) for one in installed)
    return StreamSent(payload, carried, seconds, network.requests(), cpu)
