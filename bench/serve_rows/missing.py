"""Installations on targets that have a part of the image: only what is missing is fetched."""

import shutil
import time

from guest_rows.programs import timed
from image_rows.stored import smaller
from lib import system
from lib.measure import Cost, Sample
from lib.rows.beside import ONEFOLD, alternating

from .images import NEXT, WEB
from .machines import Client, install, server
from .network import Network
from .row import ServeRow, expect
from .web import PROGRAM, nginx

FULL, CASYNC = "full", "casync"
KILLED_AT = 0.9
POLL_SECONDS = 0.002
SECTOR_BYTES = 512


class PreviousRow(ServeRow):
    """The target has the version before, of which a twentieth has changed."""

    name = "previous"
    sides = (ONEFOLD, FULL, CASYNC, "changed")
    share_of_time = 2.0
    needs_network = True
    needed = ("casync", PROGRAM)

    def make_lines(self, settings):
        title = "target with the version before (5 % changed)"
        yield smaller("previous-bytes", f"{title}: bytes fetched", "MiB", 1.3, 1.1, beside="new units, compressed")
        yield smaller("previous-full", "its time", "s", 0.35, 0.15, beside="an installation on a blank target")
        yield smaller("previous-casync", "the same", "s", 0.5, 0.25, beside="`casync extract --seed`")

    def prepare(self, images, settings):
        images.ensure_archive()
        web = images.folder / "web"
        web.mkdir(exist_ok=True)
        system.run("casync", "make", f"--store={web}/store.castr", f"{web}/next.caibx", images.path(NEXT))

    def measure(self, images, settings, round_no):
        target, mib = images.targets / "disk", 1 << 20
        with Network(1, settings.link_bits) as network:
            for side in alternating(round_no, ONEFOLD, FULL, CASYNC):
                target.unlink(missing_ok=True)
                if side == CASYNC:
                    took = self._casync(images, network, target)
                    yield "previous-casync", side, Sample(took.seconds, Cost(took.cpu_seconds))
                    continue
                if side == ONEFOLD:
                    system.run("cp", "--sparse=always", images.path(WEB), target)
                    system.run("sync", target)
                force = ("--force",) if side == ONEFOLD else ()
                with server(images, network) as serving:
                    took = install(images, serving, NEXT, target, network=network, number=2, options=force)
                images.expect_installed(target, NEXT)
                sample = Sample(took.seconds, Cost(took.cpu_seconds), more=took.told)
                yield "previous-full", side, sample
                if side == ONEFOLD:
                    yield "previous-casync", side, sample
                    yield "previous-bytes", side, Sample(took.told["received_bytes"] / mib)
                    yield "previous-bytes", "changed", Sample(images.changed_bytes / mib)

    @staticmethod
    def _casync(images, network, target):
        with nginx(images, images.folder / "web", network) as address:
            seed = f"--seed={images.path(WEB)}"
            extract = f"casync extract --store={address}/store.castr {seed} {address}/next.caibx {target}"
            return timed(*network.at(2), "bash", "-ec", f"{extract} && sync {target}")

    def finish(self, images, settings):
        super().finish(images, settings)
        shutil.rmtree(images.folder / "web")


class KilledRow(ServeRow):
    """An installation is killed when nine tenths of its data are on the target, and begun anew."""

    name = "killed"
    share_of_time = 1.0
    needs_network = True

    def make_lines(self, settings):
        title = "bytes fetched by the run after a kill -9 at 90 %, of the image's chunks"
        yield smaller("killed", title, "%", 13, 11)

    def measure(self, images, settings, round_no):
        target, payload = images.targets / "disk", images.list_of(WEB)["bytes"]
        # A new file gets its name at the end; a disk is there from the start.
        target.unlink(missing_ok=True)
        with open(target, "wb") as file:
            file.truncate(images.path(WEB).stat().st_size)
        with Network(1, settings.slow_bits) as network, server(images, network) as serving:
            first = install(images, serving, WEB, images.targets / "whole", network=network, number=2)
            wanted = first.told["written_bytes"] * KILLED_AT
            client = Client(images, serving, WEB, target, network, 2, ("--force",))
            while not client.poll() and target.stat().st_blocks * SECTOR_BYTES < wanted:
                time.sleep(POLL_SECONDS)
            was_running = not client.poll()
            client.kill()
            expect(was_running, "the installation ended before it could be killed")
            written = target.stat().st_blocks * SECTOR_BYTES
            second = install(images, serving, WEB, target, network=network, number=2, options=("--force",))
        images.expect_installed(target, WEB)
        images.drop_targets()
        more = {"written_part": written / first.told["written_bytes"]}
        yield "killed", ONEFOLD, Sample(100 * second.told["received_bytes"] / payload, more=second.told | more)
