"""What packs of an archive hold, by their tables: docs/format/archive.md and crates/onefold-image/src/format/pack.rs.

Only this tells headers of chunks, which are metadata, from units of data: both are units of packs.
"""

import struct

from lib.system import BenchError

# An entry of a table: name, stored bytes, plain bytes.
ENTRY = struct.Struct("<32sII")
# Length of the table and its offset in the pack, checksum, version, features; a digest follows.
FOOTER = struct.Struct("<IIIHH")
DIGEST_BYTES = 32
# The layout that is read here.
VERSION = 1


def entries(pack):
    """Yields the name and the stored bytes of each unit of a pack."""
    with open(pack, "rb") as file:
        end = file.seek(0, 2) - DIGEST_BYTES - FOOTER.size
        if end < 0:
            raise BenchError(f"{pack} is no pack")
        file.seek(end)
        table_bytes, offset, _, version, _ = FOOTER.unpack(file.read(FOOTER.size))
        if version != VERSION or offset + table_bytes != end or table_bytes % ENTRY.size:
            raise BenchError(f"{pack} has another layout than version {VERSION}")
        file.seek(offset)
        for name, stored_bytes, _ in ENTRY.iter_unpack(file.read(table_bytes)):
            yield name, stored_bytes


def units_bytes(archive):
    """Returns the stored bytes of all units of data in an archive; manifests name the others, headers of chunks."""
    manifests = [path.read_bytes() for path in files(archive, "manifests")]
    packs = [entry for pack in files(archive, "packs") for entry in entries(pack)]
    return sum(stored for name, stored in packs if not any(name in manifest for manifest in manifests))


def files(archive, kind):
    """Returns the objects of a kind."""
    return sorted(path for path in (archive / kind).rglob("*") if path.is_file() and not path.name.startswith("."))
