"""Installations with one slow stage, beside this stage alone; and what each stage does alone and in the pipeline."""

import json
from contextlib import contextmanager

from guest_rows.programs import timed
from image_rows.line import ImageLine
from image_rows.packs import files
from image_rows.stored import smaller
from lib import cgroup, device
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, alternating

from .child import Child, wait_all
from .images import NOISE, WEB
from .machines import Client, install, server
from .network import Network
from .row import ServeRow
from .web import PROGRAM, nginx

STAGE = "stage alone"
# Of a slow disk, and of a slow processor: a part of one core.
DISK_BYTES_PER_SECOND = 100 * 10**6
CPU_PART, PERIOD_MICROSECONDS = 0.25, 100_000


class NarrowRow(ServeRow):
    """A narrow link, beside the same bytes as one file."""

    name = "narrow"
    sides = (ONEFOLD, STAGE)
    needs_network = True
    needed = ("curl", PROGRAM)

    def make_lines(self, settings):
        title = f"installation over {settings.narrow_bits // 10**6} Mbit/s"
        yield smaller("narrow", title, "s", 1.07, 1.02, beside="`curl` of as many bytes")

    def measure(self, images, settings, round_no):
        payload, file = images.list_of(WEB)["bytes"], images.folder / "payload"
        with open(images.path(NOISE), "rb") as noise, open(file, "wb") as copy:
            for _ in range(-(-payload // settings.noise_bytes)):
                noise.seek(0)
                copy.write(noise.read())
            copy.truncate(payload)
        with Network(1, settings.narrow_bits) as network:
            for side in alternating(round_no, ONEFOLD, STAGE):
                if side == ONEFOLD:
                    with server(images, network) as serving:
                        took = install(images, serving, WEB, images.targets / "disk", network=network, number=2)
                    images.expect_installed(images.targets / "disk", WEB)
                    images.drop_targets()
                else:
                    with nginx(images, images.folder, network) as place:
                        words = ("curl", "--silent", "--fail", "--output", "/dev/null", f"{place}/payload")
                        took = timed(*network.at(2), *words)
                yield "narrow", side, Sample(took.seconds)
        file.unlink()


class SlowDiskRow(ServeRow):
    """A disk of 100 MB/s, beside `dd` of as many bytes to it."""

    name = "slow-disk"
    sides = (ONEFOLD, STAGE)

    def make_lines(self, settings):
        title = "installation on a disk of 100 MB/s"
        yield smaller("slow-disk", title, "s", 1.07, 1.02, beside="`dd` of as many bytes to it")

    def missing(self, settings):
        return super().missing(settings) or cgroup.why_missing("blkio")

    def measure(self, images, settings, round_no):
        disk, length = images.folder / "slow.device", images.path(WEB).stat().st_size
        images.ensure_archive()
        with open(disk, "wb") as file:
            file.truncate(length)
        loop = device.attach_loop(disk)
        group = cgroup.slowed_disk(cgroup.name_for(disk), loop, DISK_BYTES_PER_SECOND)
        written = 0
        try:
            with server(images) as serving:
                client = Client(images, serving, WEB, loop, options=("--force", "--fresh"), group=group)
                took = wait_all([client])[0]
                written = took.told["written_bytes"] + took.told["zeroed_bytes"]
            yield "slow-disk", ONEFOLD, Sample(took.seconds, more=took.told)
            images.expect_installed(loop, WEB)
            words = ("dd", f"if={images.path(WEB)}", f"of={loop}", "bs=1M", f"count={written}", "iflag=count_bytes")
            took = wait_all([Child(*words, "oflag=direct", "conv=fsync", "status=none", group=group)])[0]
            yield "slow-disk", STAGE, Sample(took.seconds, more={"bytes": written})
        finally:
            group.close()
            device.detach_loops(disk)
        disk.unlink()


class SlowCpuRow(ServeRow):
    """A quarter of a core, beside decompression and verification with as much."""

    name = "slow-cpu"
    sides = (ONEFOLD, STAGE)

    def make_lines(self, settings):
        title = f"installation with {CPU_PART:.0%} of a core"
        yield smaller("slow-cpu", title, "s", 1.07, 1.02, beside="decompression and verification with as much")

    def missing(self, settings):
        return super().missing(settings) or cgroup.why_missing("cpu")

    def measure(self, images, settings, round_no):
        program = images.example("chunk_speed")
        images.list_of(WEB)
        with slow_cpu(cgroup.name_for(images.folder / "cpu.device")) as group, server(images) as serving:
            for side in alternating(round_no, ONEFOLD, STAGE):
                if side == ONEFOLD:
                    target = images.targets / "disk"
                    took = wait_all([Client(images, serving, WEB, target, options=("--fresh",), group=group)])[0]
                    images.expect_installed(target, WEB)
                    images.drop_targets()
                    yield "slow-cpu", side, Sample(took.seconds, more=took.told)
                else:
                    took = wait_all([Child(program, images.archive, WEB, "stages", group=group)])[0]
                    told = json.loads(took.out)
                    yield "slow-cpu", side, Sample(told["decompress_seconds"] + told["verify_seconds"], more=told)


class StagesRow(ServeRow):
    """Bytes of chunks a second: each stage alone on one core or one link, and all of them in an installation."""

    name = "stages"
    needs_network = True
    needed = ("curl", PROGRAM)
    STAGES = {
        "read": "packs out of the page cache",
        "build": "chunks",
        "send": "by nginx, on a link without limit",
        "receive": "by `curl`, on a link without limit",
        "verify": "BLAKE3 of the plain bytes",
        "decompress": "Zstandard",
        "write": "as many plain bytes, by `dd` with a flush",
    }

    # As `install` calls them, which says of each how long it was busy.
    IN_PIPELINE = {"receive": "HTTP, waits for the server included", "unpack": "verification and decompression", "write": "to a new file"}

    def make_lines(self, settings):
        for stage, what in self.STAGES.items():
            yield ImageLine(f"stage-{stage}", f"chunks a second, {stage} alone: {what}", "MB/s")
        for stage, what in self.IN_PIPELINE.items():
            title = f"the same, {stage} in the pipeline: {what}, by the time of all threads together"
            yield ImageLine(f"stage-pipeline-{stage}", title, "MB/s")
        yield ImageLine("stage-pipeline", "the same, all stages in one installation", "MB/s")

    def measure(self, images, settings, round_no):
        payload = images.list_of(WEB)["bytes"]

        def rate(stage, seconds, length=payload):
            return f"stage-{stage}", ONEFOLD, Sample(length / 10**6 / seconds)

        packs = files(images.archive, "packs")
        yield rate("read", timed("cat", *packs).seconds, sum(pack.stat().st_size for pack in packs))
        told = images.chunk_speed(WEB, "stages")
        for stage in ("build", "verify", "decompress"):
            yield rate(stage, told[f"{stage}_seconds"])
        with Network(1) as network:
            with nginx(images, images.folder, network) as place:
                words = ("curl", "--silent", "--fail", "--output", "/dev/null", f"{place}/{NOISE}.raw")
                took = timed(*network.at(2), *words)
            length = images.path(NOISE).stat().st_size
            yield rate("send", took.seconds, length)
            yield rate("receive", took.cpu_seconds or took.seconds, length)
            copy = images.targets / "copy"
            words = ("dd", f"if={images.path(WEB)}", f"of={copy}", "bs=1M", f"count={told['plain_bytes']}")
            took = timed(*words, "iflag=count_bytes", "conv=fsync", "status=none")
            yield rate("write", took.seconds)
            with server(images, network) as serving:
                took = install(images, serving, WEB, images.targets / "disk", network=network, number=2)
            yield rate("pipeline", took.seconds)
            for stage, figure in (took.told.get("stages") or {}).items():
                if stage in self.IN_PIPELINE and figure and figure["seconds"]:
                    yield rate(f"pipeline-{stage}", figure["seconds"])


@contextmanager
def slow_cpu(name):
    """Gives a control group whose processes together get a part of one core."""
    hierarchy = cgroup.usable("cpu")
    group = cgroup.Group(hierarchy, name, ["cpu"])
    quota = int(CPU_PART * PERIOD_MICROSECONDS)
    try:
        if hierarchy.unified:
            group.limit("cpu.max", f"{quota} {PERIOD_MICROSECONDS}")
        else:
            group.limit("cpu.cfs_period_us", PERIOD_MICROSECONDS)
            group.limit("cpu.cfs_quota_us", quota)
        yield group
    finally:
        group.close()
