"""What a pass costs at a size: an index of very many blocks without their data, and a batch that is merged into it."""

import shutil

from lib import system
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, lower
from lib.rows.row import MB

from .row import ShareRow

MIB = 1 << 20
GB = 1e9
BLOCK_BYTES = 4096
# The memory that a pass is given, as it comes.
MEMORY_MIB = 256
# So much of the index is copied, to see what the disk does.
COPY_BYTES_MAX = 1 << 30


class IndexRow(ShareRow):
    """Nothing is shared: the news are contents that the index does not have."""

    base = "index"
    share_of_time = 3.0
    rounds_max = 1

    def make_lines(self, settings):
        size = amount(settings.index_entries)
        news = amount(settings.index_news)
        scan = f"going through the index of {size} of distinct blocks, in blocks, cold cache"
        yield BesideLine(self.name, scan, "GB/s", goal="report", paper="6.6 GB/s")
        merge = f"writing it anew with {news} of new blocks, bytes of the index read and written"
        yield BesideLine(f"{self.name}-merge", merge, "MB/s", goal="0.5x", beside="copy of a part of it, fsync")
        yield lower(f"{self.name}-pass", "the whole pass", "s", goal="report")
        memory = f"its highest resident memory at `--memory {MEMORY_MIB}M`"
        yield lower(f"{self.name}-memory", memory, "MiB", goal="within `--memory`")
        entry = "bytes of the index for each entry of it, all unique"
        yield lower(f"{self.name}-entry", entry, "B", goal="at most 23 B", paper="30 B")
        overhead = "that is, of the blocks"
        yield lower(f"{self.name}-overhead", overhead, "%", goal="report", paper="0.73 %")

    def measure(self, ground, settings, round_no):
        ground.open()
        words = (f"--entries={settings.index_entries}", f"--news={settings.index_news}", ground.mountpoint)
        system.run(ground.programs.synthetic, "index", *words)
        copied = self._copy(ground)
        ground.make_cold()
        done = ground.share("--memory", f"{MEMORY_MIB}M")
        told, index = done.told, done.told["index"]
        if told["scanned"]["read_bytes"] or told["planned"]["new"] != settings.index_news:
            raise system.BenchError(f"{self.name}: the pass did something else than merging: {told}")
        entries = settings.index_entries
        per_entry = index["bytes"] / (index["unique"] + index["shared"])
        # The index is read once for the plan, and read and written for the merge.
        merged = entries * per_entry + index["bytes"]
        scanned = entries * BLOCK_BYTES / done.seconds_of("plan")
        yield self.name, ONEFOLD, Sample(scanned / GB, more=told)
        yield f"{self.name}-merge", ONEFOLD, Sample(merged / MB / done.seconds_of("publish"))
        yield f"{self.name}-merge", OTHER, Sample(copied)
        yield f"{self.name}-pass", ONEFOLD, Sample(done.seconds)
        yield f"{self.name}-memory", ONEFOLD, Sample(told["memory_peak_bytes"] / MIB)
        yield f"{self.name}-entry", ONEFOLD, Sample(per_entry, more=index)
        yield f"{self.name}-overhead", ONEFOLD, Sample(100 * per_entry / BLOCK_BYTES)
        ground.close()

    @staticmethod
    def _copy(ground):
        """Returns at which rate the disk reads and writes files of the index, both counted, in MB/s."""
        copies, length, seconds = ground.path("copies"), 0, 0.0
        copies.mkdir()
        ground.make_cold()
        for shard in sorted(ground.path(".onefold/shards").iterdir()):
            if length >= COPY_BYTES_MAX:
                break
            words = (f"if={shard}", f"of={copies / shard.name}", "bs=1M", "conv=fsync", "status=none")
            seconds += system.run("dd", *words).seconds
            length += shard.stat().st_size
        shutil.rmtree(copies)
        return 2 * length / MB / seconds


def amount(blocks):
    """Returns a number of blocks as bytes, as people say it."""
    size, unit = blocks * BLOCK_BYTES, ""
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024:
            break
    return f"{size:.0f} {unit}"
