"""The savings of "Frisbee on Venti" repeated: with the paper's unit, 32 KiB at fixed places of the disk, and with ours.

The paper's 430 images are not available. Its 69.312 % by blocks and 67.82 % with metadata do not name their base, so
both possible ones are shown.
"""

import hashlib
import zlib

from guest_rows.programs import data_ranges, timed
from lib.measure import Sample
from lib.rows.beside import ONEFOLD

from .images import capture, missing_of
from .line import ImageLine
from .packs import units_bytes
from .row import ImageRow
from .stored import smaller

PAPER, CHUNKS = "fixed 32 KiB", "finished chunks"
UNIT_BYTES = 32 << 10
CHUNK_BYTES = 1 << 20
KINDS = {ONEFOLD: (), PAPER: ("--unit", "fixed", "--unit-size", "32K")}


class PaperRow(ImageRow):
    """The savings of a set."""

    sides = (ONEFOLD, PAPER, CHUNKS)
    share_of_time = 3.0
    rounds_max = 1
    in_quick = False

    def __init__(self, settings, corpus_set):
        self.name, self.corpus_set = f"paper-{corpus_set}", corpus_set
        super().__init__(settings)

    def make_lines(self, settings):
        what, beside = f"`{self.corpus_set}`: saved of", "the paper's unit"
        bases = {
            "units": "the sum of all compressed units, each image in an archive of its own; by blocks",
            "images": "one compressed image each (`zstd` of equal content); by blocks",
        }
        for base, title in bases.items():
            yield ImageLine(f"{self.name}-{base}", f"{what} {title} (paper: 69.3 %)", "%", beside=beside)
            title = "the same with metadata (paper: 67.8 %)"
            yield ImageLine(f"{self.name}-{base}-metadata", title, "%", beside=beside)
        title = "apparent size of the disks / each image in an archive of its own (paper: 10 to 20)"
        yield ImageLine(f"{self.name}-apparent", title, "times", beside=beside)
        title = "bytes of finished chunks of 1 MiB (the paper's units, zlib) that another image has, too (paper: 3 %)"
        yield smaller(f"{self.name}-chunks", title, "%", None, None)

    def missing(self, settings):
        return missing_of(self.corpus_set, settings)

    def measure(self, images, settings, round_no):
        paths = images.equal(self.corpus_set)
        packed = sum(packed_bytes(images, path) for path in paths)
        for side, words in KINDS.items():
            alone, total, units, apparent = 0, 0, 0, 0
            for path in paths:
                one = capture(images.programs, images.folder / "alone", [path], words)
                alone += units_bytes(one.archive)
                total += one.total_bytes
                apparent += one.sum("size_bytes")
            every = capture(images.programs, images.folder / "alone", paths, words)
            units = units_bytes(every.archive)
            for base, whole in (("units", alone), ("images", packed)):
                yield f"{self.name}-{base}", side, Sample(100 * (1 - units / whole), more={"base_bytes": whole})
                yield f"{self.name}-{base}-metadata", side, Sample(100 * (1 - every.total_bytes / whole))
            yield f"{self.name}-apparent", side, Sample(apparent / total, more={"bytes": total})
        share, more = repeated_chunks(paths)
        yield f"{self.name}-chunks", ONEFOLD, Sample(100 * share, more=more)


def packed_bytes(images, path):
    """Returns the length of an image compressed by zstd."""
    packed = images.folder / "packed.zst"
    timed("zstd", "--quiet", "--force", path, "-o", packed)
    length = packed.stat().st_size
    packed.unlink()
    return length


def repeated_chunks(paths):
    """Returns the part of all finished chunks' bytes that were there before, and counts."""
    seen, total, repeated = set(), 0, 0
    for path in paths:
        for chunk in finished_chunks(compressed_units(path)):
            total += len(chunk)
            digest = hashlib.sha256(chunk).digest()
            repeated += len(chunk) if digest in seen else 0
            seen.add(digest)
    return repeated / total if total else 0.0, {"chunks": len(seen), "bytes": total, "repeated_bytes": repeated}


def compressed_units(path):
    """Yields the units of 32 KiB at fixed places of a disk that are not zero, compressed as in the paper."""
    zero = bytes(UNIT_BYTES)
    with open(path, "rb") as file:
        last = -1
        for start, end in data_ranges(file):
            for index in range(max(start // UNIT_BYTES, last + 1), -(-end // UNIT_BYTES)):
                last = index
                file.seek(index * UNIT_BYTES)
                unit = file.read(UNIT_BYTES)
                if unit != zero[: len(unit)]:
                    yield zlib.compress(unit, 1)


def finished_chunks(units):
    """Yields chunks of 1 MiB: one compressed unit after the other, as long as they fit."""
    chunk = bytearray()
    for unit in units:
        if len(chunk) + len(unit) > CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
        chunk += unit
    if chunk:
        yield bytes(chunk)
