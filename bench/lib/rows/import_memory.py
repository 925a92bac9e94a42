"""What the daemon keeps in memory while many images come in, under a small memory setting."""

from ..data import BLOCK_BYTES, CHUNK_BYTES, ImageData
from ..measure import Line, Sample
from ..system import BenchError
from .row import Row, seed_of

MIB = 1 << 20
SOURCE = "source.image"
SEED = seed_of(0, use=18)

# The setting of `--memory` in MiB, and what is wanted of the savings there.
SETTINGS = {256: "100 %", 64: "report"}


class ImportMemoryRow(Row):
    """A fresh daemon takes a row of images (`data.ImageData`) by `onefold pool import`; each shares blocks with the one
    before it. Then its highest resident memory is read, and what was stored is held against a naive count.
    """

    name = "import-memory"
    sides = ("pool",)
    share_of_time = 2.0
    lines = tuple(
        line
        for memory_mib, saved in SETTINGS.items()
        for line in (
            Line(
                f"import-memory-{memory_mib}",
                f"import of many images at `--memory {memory_mib}M`: highest resident memory", "MiB",
                higher_is_better=False, goal=f"at most {memory_mib} MiB", has_ratio=False,
            ),
            Line(
                f"import-memory-{memory_mib}-saved", "of what equal blocks can save, saved", "%", goal=saved,
                has_ratio=False,
            ),
        )
    )  # fmt: skip
    rounds_max = 1

    def measure(self, side, settings, round_no):
        samples = {}
        for memory_mib in SETTINGS:
            side.remount(memory=memory_mib * MIB)
            before = side.stat()
            names = [f"image-{number}" for number in range(settings.import_images)]
            for number, name in enumerate(names):
                self._import(side, settings, number, name)
            after, memory = side.stat(), side.memory_status()
            side.remove(*names)
            more = {key: after["filter"][key] for key in ("memory_bytes", "entry_count", "refused_count")}
            more["anonymous_bytes"] = memory["RssAnon"]
            samples[f"{self.name}-{memory_mib}"] = Sample(memory["VmHWM"] / MIB, more=more)
            stored_bytes = after["distinct_bytes"] - before["distinct_bytes"]
            samples[f"{self.name}-{memory_mib}-saved"] = Sample(saved_percent(settings, stored_bytes))
        return samples

    @staticmethod
    def _import(side, settings, number, name):
        # Beside the pool, where the client's own memory and caches are nobody's whom we measure.
        source = side.device.with_name(SOURCE)
        try:
            source.touch()
            side.user.own(source)
            side.client("write", source, bytes=settings.import_image_bytes, data="image", count=number, seed=SEED)
            side.command(
                side.onefold, "--quiet", "pool", "import", side.mountpoint, source, "--format", "raw", "--to", name
            )
        finally:
            source.unlink(missing_ok=True)

    def finish(self, side, settings):
        side.remount()


def saved_percent(settings, stored_bytes):
    """Returns which part was saved of what equal blocks can save, by a naive count of the images' blocks.

    Raises BenchError where less was stored than there is.
    """
    chunks = settings.import_image_bytes // CHUNK_BYTES
    distinct = ImageData.distinct_blocks(settings.import_images, chunks)
    written = settings.import_images * ImageData.stored_blocks(chunks)
    stored = stored_bytes // BLOCK_BYTES
    if stored < distinct:
        raise BenchError(f"the pool stores {stored} blocks of images that have {distinct} distinct ones")
    return 100 * (written - stored) / (written - distinct)
