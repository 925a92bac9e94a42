"""One machine over HTTP: an installation, and the raw disk."""

import random
import shutil

from guest_rows.programs import timed, warm
from image_rows.line import ImageLine
from image_rows.stored import smaller
from lib import system
from lib.measure import Cost, Sample
from lib.rows.beside import ONEFOLD, alternating

from .images import NOISE, WEB
from .machines import install, server
from .network import Network
from .row import ServeRow, expect
from .web import PROGRAM, nginx

MIB = 1 << 20
CURL, NGINX, FLOOR = "curl", "nginx", "64M"
MEMORY_BYTES = {"256M": 256 * MIB, "64M": 64 * MIB}
PACKED = f"{WEB}.raw.zst"
# What is read at random places: so many requests of 4 KiB at once.
DEPTH, REQUEST_BYTES = 32, 4096


class HttpRow(ServeRow):
    """An installation over a link of 1 Gbit/s, beside the way without any program of images."""

    name = "http"
    sides = (ONEFOLD, CURL)
    share_of_time = 2.0
    needs_network = True
    needed = ("curl", "zstd", "dd", PROGRAM)

    def make_lines(self, settings):
        title = "one machine over HTTP, 1 Gbit/s: content / link"
        yield ImageLine("http-link", title, "%", bound=92, aim=94)
        yield smaller("http", "installation of a system over this link", "s", 1.0, 0.7, beside="`curl`, `zstd -d`, `dd`")

    def prepare(self, images, settings):
        web = images.folder / "web"
        web.mkdir(exist_ok=True)
        images.ensure_archive()
        system.run("zstd", "--quiet", "--force", images.path(WEB), "-o", web / PACKED)

    def measure(self, images, settings, round_no):
        target = images.targets / "disk"
        with Network(1, settings.link_bits) as network:
            for side in alternating(round_no, ONEFOLD, CURL):
                target.unlink(missing_ok=True)
                if side == ONEFOLD:
                    with server(images, network) as serving:
                        took = install(images, serving, WEB, target, network=network, number=2)
                    images.expect_installed(target, WEB)
                    yield self._link(images, settings, network)
                else:
                    with nginx(images, images.folder / "web", network) as address:
                        write = f"dd of={target} bs=1M iflag=fullblock conv=sparse,fsync status=none"
                        script = f"curl --silent --fail {address}/{PACKED} | zstd -dc | {write}"
                        took = timed(*network.at(2), "bash", "-o", "pipefail", "-ec", script)
                yield "http", side, Sample(took.seconds, Cost(took.cpu_seconds))

    @staticmethod
    def _link(images, settings, network):
        """Measures with noise, which is long and is hardly decompressed."""
        payload, target = images.list_of(NOISE)["bytes"], images.targets / "noise"
        with server(images, network) as serving:
            took = install(images, serving, NOISE, target, network=network, number=2)
        images.expect_installed(target, NOISE)
        target.unlink()
        return "http-link", ONEFOLD, Sample(100 * payload * 8 / took.seconds / settings.link_bits, more=took.told)

    def finish(self, images, settings):
        super().finish(images, settings)
        shutil.rmtree(images.folder / "web")


class RawRow(ServeRow):
    """The raw disk by ranges, beside nginx with the raw file."""

    name = "raw"
    sides = (ONEFOLD, NGINX)
    needed = ("curl", PROGRAM)

    def make_lines(self, settings):
        title = "`raw` over HTTP, whole, on this machine"
        yield ImageLine("raw-whole", title, "MiB/s", bound=0.5, aim=0.9, beside="nginx with the raw file")
        title = f"4 KiB of it at random places, {DEPTH} at once"
        yield ImageLine("raw-random", title, "per s", beside="nginx with the raw file")

    def measure(self, images, settings, round_no):
        # Both have it in the page cache: the packs, and the file.
        images.list_of(WEB)
        warm(images.path(WEB))
        for side in alternating(round_no, ONEFOLD, NGINX):
            if side == ONEFOLD:
                with server(images) as serving:
                    yield from self._read(images, settings, side, f"{serving.address}/v1/images/{WEB}/raw", round_no)
            else:
                with nginx(images, images.folder) as address:
                    yield from self._read(images, settings, side, f"{address}/{WEB}.raw", round_no)

    @staticmethod
    def _read(images, settings, side, address, round_no):
        length = images.path(WEB).stat().st_size
        took = timed("curl", "--silent", "--fail", "--output", "/dev/null", address)
        yield "raw-whole", side, Sample(length / MIB / took.seconds, Cost(took.cpu_seconds))
        config = images.folder / "curl.config"
        config.write_text(requests(address, length, settings.raw_requests, round_no), encoding="ascii")
        words = ("curl", "--silent", "--fail", "--parallel", "--parallel-max", str(DEPTH), "--config", config)
        took = timed(*words)
        yield "raw-random", side, Sample(settings.raw_requests / took.seconds, Cost(took.cpu_seconds))


def requests(address, length, count, seed):
    """Returns what curl is to request: ranges at random places, the same for each server in a round."""
    dice = random.Random(seed)
    places = [dice.randrange(length // REQUEST_BYTES) * REQUEST_BYTES for _ in range(count)]
    ranges = (f"{place}-{place + REQUEST_BYTES - 1}" for place in places)
    return "next\n".join(f'url = "{address}"\nrange = "{asked}"\noutput = "/dev/null"\n' for asked in ranges)


class MemoryRow(ServeRow):
    """An installation with the least memory on both sides, beside the default."""

    name = "memory"
    sides = (ONEFOLD, "default")

    def make_lines(self, settings):
        yield smaller("memory-server", "highest memory of a server with `--memory 64M`", "MiB", 64, None)
        yield smaller("memory-client", "of its client with `--memory 64M`", "MiB", 64, None)
        yield smaller("memory-time", "time of that installation", "s", 1.2, 1.0, beside="with the default of 256 MiB")

    def measure(self, images, settings, round_no):
        target = images.targets / "disk"
        for side, memory in alternating(round_no, (ONEFOLD, FLOOR), ("default", "256M")):
            target.unlink(missing_ok=True)
            with server(images, options=("--memory", memory)) as serving:
                took = install(images, serving, WEB, target, options=("--memory", memory))
                of_server = serving.memory_bytes()
            images.expect_installed(target, WEB)
            expect(took.seconds > 0, "an installation takes no time")
            more = {"server_bytes": of_server, "client_bytes": took.memory_bytes}
            yield "memory-time", side, Sample(took.seconds, more=more)
            if side == ONEFOLD:
                yield "memory-server", side, Sample(of_server / MIB)
                yield "memory-client", side, Sample(took.memory_bytes / MIB)
