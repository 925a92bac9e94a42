"""One guest's boot: whether an image can, what it reads and writes while it does, and a copy with no more than that."""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import system
from .data import BLOCK_BYTES, CHUNK_BYTES

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "boot-image.sh"
# Without the processor's virtualisation a guest takes half a minute; a busy machine makes it minutes.
BOOT_SECONDS_MAX = 280
# What QEMU writes for a request: see `--record` of the script. A guest's requests all come through one `blk`.
REQUEST = re.compile(
    r"^blk_co_p(?P<op>read|write)v blk (?P<blk>\S+) bs \S+ offset (?P<offset>\d+) bytes (?P<bytes>\d+) "
)


@dataclass(frozen=True)
class Record:
    """The requests of a boot until the guest was up, in whole blocks: pairs of offset and length."""

    reads: list
    writes: list

    def read_bytes(self):
        """Returns how many different bytes are read."""
        return BLOCK_BYTES * len({block for request in self.reads for block in units(request, BLOCK_BYTES)})

    def chunks(self):
        """Returns the numbers of all chunks that a boot touches."""
        return {chunk for request in self.reads + self.writes for chunk in units(request, CHUNK_BYTES)}


def units(request, unit_bytes):
    offset, length = request
    return range(offset // unit_bytes, -(-(offset + length) // unit_bytes))


def why_not(image):
    """Returns why an image cannot be booted here, None where it seems that it can."""
    if image is None:
        return "no image; `make demo` builds some into bench/corpus/cache, `--image` names one"
    if shutil.which("qemu-system-x86_64") is None:
        return "there is no qemu-system-x86_64"
    with open(image, "rb") as file:
        sector = file.read(512)
    # As the script looks: code, and the mark of a boot sector.
    if sector[510:] != b"\x55\xaa" or not any(sector[:440]):
        return f"{image.name} has no boot loader"
    return None


def boot(image, *options, user=None):
    """Boots a guest from an image until it is up, then powers it off; returns how many seconds it took to come up."""
    words = (SCRIPT, "--seconds", "--timeout", BOOT_SECONDS_MAX, *options, image)
    return float(system.run(*map(str, words), timeout=BOOT_SECONDS_MAX + 100, user=user).text)


def record_of(image, folder):
    """Returns what a boot of an image reads and writes: from an earlier run in this folder, or by booting it now.

    The image is not written to.
    """
    status = os.stat(image)
    kept = folder / f"boot-{image.stem}-{status.st_size}-{status.st_mtime_ns}.json"
    if not kept.exists():
        raw = folder / "boot.trace"
        try:
            boot(image, "--snapshot", "--record", raw)
            record = parse(raw.read_text(encoding="ascii", errors="replace"))
        finally:
            raw.unlink(missing_ok=True)
        new = kept.with_name(kept.name + ".new")
        new.write_text(json.dumps({"reads": record.reads, "writes": record.writes}), encoding="ascii")
        new.replace(kept)
    return load(kept), kept


def load(path):
    document = json.loads(path.read_text(encoding="ascii"))
    return Record([tuple(request) for request in document["reads"]], [tuple(request) for request in document["writes"]])


def parse(text):
    """Returns the record in QEMU's account, each request rounded out to whole blocks.

    Raises BenchError where there is none.
    """
    requests = [match for match in map(REQUEST.match, text.splitlines()) if match]
    counts = {}
    for request in requests:
        counts[request["blk"]] = counts.get(request["blk"], 0) + 1
    if not counts:
        raise system.BenchError("QEMU has recorded no request of the guest")
    # Besides the guest's disk there may be others: QEMU's own file for what a guest writes with --snapshot.
    disk = max(counts, key=counts.get)
    found = {"read": [], "write": []}
    for request in requests:
        if request["blk"] == disk and int(request["bytes"]):
            blocks = units((int(request["offset"]), int(request["bytes"])), BLOCK_BYTES)
            found[request["op"]].append((blocks.start * BLOCK_BYTES, len(blocks) * BLOCK_BYTES))
    return Record(found["read"], found["write"])


def copy_touched(image, record, path):
    """Copies those chunks of an image that its boot touches into a new sparse file of the same length."""
    with open(image, "rb") as source, open(path, "wb") as file:
        file.truncate(os.path.getsize(image))
        for chunk in sorted(record.chunks()):
            source.seek(chunk * CHUNK_BYTES)
            data = source.read(CHUNK_BYTES)
            if any(data):
                file.seek(chunk * CHUNK_BYTES)
                file.write(data)
