"""Installations on many machines: at once, one later than the other, and where multicast does not arrive."""

import shutil
import time

from image_rows.stored import smaller
from lib import system
from lib.measure import Cost, Sample
from lib.rows.beside import ONEFOLD, alternating, lacking

from .child import wait_all
from .images import WEB
from .machines import Client, install_all, server
from .multicast import PAYLOAD_PART, http_bytes, payload_sent, rate_of
from .network import Network, wait_until
from .peers import UDPCAST, Udpcast, why_none
from .row import ServeRow, expect

PREBUILT, HTTP, ALONE = "prebuilt", "HTTP", "alone"
PACKED = "partclone.zst"
# The paper's times of one client, from deduplicated storage and with chunks that were made beforehand.
PAPER = "paper: 23.00 s / 22.37 s, 1.03x"
NOT_HEARD = "does not arrive"
POLL_SECONDS = 0.005


class ClientsRow(ServeRow):
    """The paper's measurement: all machines begin at once; chunks on demand, beside chunks made beforehand."""

    name = "clients"
    sides = (ONEFOLD, PREBUILT, HTTP)
    share_of_time = 4.0
    needs_network = True

    def make_lines(self, settings):
        for count in settings.client_counts:
            machines = f"{count} machine{'s' if count > 1 else ''}"
            title = f"installation of {machines} at once, chunks on demand ({PAPER})"
            yield smaller(f"clients-{count}", title, "s", 1.03, 1.01, beside="`--chunks prebuilt`")
            yield smaller(f"clients-http-{count}", f"the same, {machines}", "s", None, None, beside="over HTTP")

    def measure(self, images, settings, round_no):
        prebuilt = ("--chunks", "prebuilt", "--chunk-folder", images.folder / "chunks")
        rate = rate_of(settings.many_bits)
        ways = ((ONEFOLD, rate, ()), (PREBUILT, rate, prebuilt), (HTTP, None, ()))
        for count in settings.client_counts:
            with Network(count, settings.many_bits) as network:
                for side, rate, options in alternating(round_no, *ways):
                    with server(images, network, rate, options) as serving:
                        installed = install_all(images, serving, network, WEB)
                        cpu = serving.cpu_seconds()
                    images.drop_targets()
                    seconds = max(one.seconds for one in installed)
                    sample = Sample(seconds, Cost(sum(one.cpu_seconds for one in installed), cpu))
                    if side != HTTP:
                        yield f"clients-{count}", side, sample
                    if side != PREBUILT:
                        yield f"clients-http-{count}", side, sample

    def finish(self, images, settings):
        super().finish(images, settings)
        shutil.rmtree(images.folder / "chunks", ignore_errors=True)


class PartcloneRow(ServeRow):
    """The way of Clonezilla and FOG, from the start to the last disk flushed."""

    name = "partclone"
    sides = (ONEFOLD, UDPCAST)
    share_of_time = 2.0
    needs_network = True

    def make_lines(self, settings):
        title = f"{settings.clients} machines, from the start to the last disk flushed"
        yield smaller("partclone", title, "s", 0.8, 0.6, beside="`partclone`, `zstd` and udpcast")

    def missing(self, settings):
        return super().missing(settings) or why_none() or lacking(("partclone.ext4", "partclone.restore", "zstd"))

    def prepare(self, images, settings):
        images.ensure_archive()
        loop = system.run("losetup", "--read-only", "--find", "--show", images.path(WEB)).text.strip()
        try:
            packed = images.folder / PACKED
            clone = f"partclone.ext4 -q -c -s {loop} -o - 2>/dev/null | zstd --quiet --force -o {packed}"
            system.run("bash", "-o", "pipefail", "-ec", clone)
        finally:
            system.run("losetup", "--detach", loop)

    def measure(self, images, settings, round_no):
        with Network(settings.clients, settings.many_bits) as network:
            for side in alternating(round_no, ONEFOLD, UDPCAST):
                if side == ONEFOLD:
                    with server(images, network, rate_of(settings.many_bits)) as serving:
                        seconds = max(one.seconds for one in install_all(images, serving, network, WEB))
                else:
                    seconds = self._by_udpcast(images, network, settings)
                images.drop_targets()
                yield "partclone", side, Sample(seconds)

    @staticmethod
    def _by_udpcast(images, network, settings):
        length = images.path(WEB).stat().st_size
        targets = [images.targets / f"disk-{number}" for number in network.clients]
        restore = "partclone.restore -q -C -s - -O {target} 2>/dev/null"
        behind = f"2>/dev/null | zstd -dc | (truncate -s {length} {{target}}; {restore})"
        paced = Udpcast(network, 8 * int(rate_of(settings.many_bits)))
        return paced.send(images.folder / PACKED, targets, behind).seconds

    def finish(self, images, settings):
        super().finish(images, settings)
        (images.folder / PACKED).unlink()


class LateRow(ServeRow):
    """A second machine joins when half of the image has been sent to the first one."""

    name = "late"
    sides = (ONEFOLD, ALONE)
    needs_network = True

    def make_lines(self, settings):
        title = "second machine joins half way: bytes sent / content"
        yield smaller("late-sent", title, "x", 1.6, 1.5)
        yield smaller("late", "its time", "s", 1.1, 1.0, beside="the machine alone")

    def measure(self, images, settings, round_no):
        payload, rate = images.list_of(WEB)["bytes"], rate_of(settings.many_bits)
        with Network(2, settings.many_bits) as network, server(images, network, rate) as serving:
            alone = install_all(images, serving, network, WEB, count=1)[0]
            images.drop_targets()
            yield "late", ALONE, Sample(alone.seconds)
            before = payload_sent(network, PAYLOAD_PART)
            first, second = network.clients
            clients = [Client(images, serving, WEB, images.targets / "first", network, first)]
            while payload_sent(network, PAYLOAD_PART) - before < payload / 2:
                expect(not clients[0].poll(), "the first machine has all before half was sent")
                time.sleep(POLL_SECONDS)
            clients.append(Client(images, serving, WEB, images.targets / "second", network, second))
            installed = wait_all(clients)
            for name in ("first", "second"):
                images.expect_installed(images.targets / name, WEB)
            sent = payload_sent(network, PAYLOAD_PART) - before + sum(http_bytes(one, payload) for one in installed)
            yield "late-sent", ONEFOLD, Sample(sent / payload)
            yield "late", ONEFOLD, Sample(installed[1].seconds, more=installed[1].told)


class StartRow(ServeRow):
    """How soon data come, with multicast and where it does not arrive."""

    name = "start"
    needs_network = True

    def make_lines(self, settings):
        yield smaller("start", "from the start of `install` to the first data by multicast", "s", 0.5, 0.2)
        yield smaller("start-http", "from its start to HTTP, where multicast does not arrive", "s", 4, 3.3)

    def measure(self, images, settings, round_no):
        with Network(1, settings.many_bits) as network, server(images, network, rate_of(settings.many_bits)) as serving:
            client = Client(images, serving, WEB, images.targets / "disk", network, 2)
            wait_until(lambda: network.sent_data()[0] > 0, "no data come by multicast")
            yield "start", ONEFOLD, Sample(time.perf_counter() - client.started)
            wait_all([client])
            images.expect_installed(images.targets / "disk", WEB)
            images.drop_targets()
        with Network(1, settings.many_bits) as network, server(images, network, rate_of(settings.many_bits)) as serving:
            network.hear_nothing(2)
            client = Client(images, serving, WEB, images.targets / "disk", network, 2, is_quiet=False)
            wait_until(lambda: NOT_HEARD in client.said() or client.poll(), "the client says nothing")
            seconds = time.perf_counter() - client.started
            wait_all([client])
            images.expect_installed(images.targets / "disk", WEB)
            images.drop_targets()
            yield "start-http", ONEFOLD, Sample(seconds)
