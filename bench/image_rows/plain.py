"""Programs that make one file of each image, whatever others hold."""

import json
from dataclasses import dataclass

from lib import system
from lib.system import BenchError

from .sides import FLUSH, Side

# Kinds of partclone, by the file system as `blkid` calls it.
PARTCLONE = {"ext4": "partclone.ext4", "xfs": "partclone.xfs", "ntfs": "partclone.ntfs", "btrfs": "partclone.btrfs"}
SECTOR_BYTES = 512


class Zstd(Side):
    """`zstd` of all bytes of the disk, free ones too."""

    name = "zstd"
    settings = "defaults (level 3)"
    needed = ("zstd",)
    deduplicates = False
    options = ""
    restore_script = "zstd -d --quiet {folder}/store/{name}.zst -o {target} && sync {target}"

    @property
    def store_script(self):
        return f"zstd --quiet --force {self.options} {{image}} -o {{folder}}/store/{{name}}.zst && {FLUSH}"


class ZstdFast(Zstd):
    """Least work."""

    name = "zstd-1"
    settings = "`-1 -T0`"
    options = "-1 -T0"


class ZstdSmallest(Zstd):
    """Looks for repetitions in the last 128 MiB."""

    name = "zstd-9-long"
    settings = "`-9 --long=27 -T0`"
    options = "-9 --long=27 -T0"
    is_default = False
    restore_script = "zstd -d --long=27 --quiet {folder}/store/{name}.zst -o {target} && sync {target}"


class Qcow2(Side):
    """Compressed clusters."""

    name = "qemu-img-c"
    settings = "`convert -c -O qcow2` (zlib)"
    needed = ("qemu-img",)
    # As slow as all others together.
    is_default = False
    deduplicates = False
    options = ""
    restore_script = "qemu-img convert -f qcow2 -O raw {folder}/store/{name}.qcow2 {target} && sync {target}"

    @property
    def store_script(self):
        words = f"qemu-img convert -c -f raw -O qcow2 {self.options} {{image}} {{folder}}/store/{{name}}.qcow2"
        return f"{words} && {FLUSH}"


class Qcow2Smallest(Qcow2):
    """The same with Zstandard."""

    name = "qemu-img-c-zstd"
    settings = "`convert -c -O qcow2 -o compression_type=zstd`"
    options = "-o compression_type=zstd"
    is_default = False


@dataclass(frozen=True)
class Root:
    """The largest partition of a disk, or the disk itself where it has no partitions."""

    start: int
    length: int
    kind: str


class Partclone(Side):
    """`partclone` of the largest partition, which knows what is free there. It stores no other part of the disk."""

    name = "partclone"
    settings = "`-c | zstd`, the largest partition"
    needed = ("partclone.ext4", "zstd", "sfdisk", "blkid")
    deduplicates = False
    store_script = (
        "{program} -q -c -s {image} -o - 2>/dev/null | zstd --quiet --force -o {folder}/store/{name}.zst && " + FLUSH
    )
    # It writes to devices and to files that have the partition's length.
    restore_script = (
        "truncate -s {length} {target} && zstd -dc --quiet {folder}/store/{name}.zst"
        " | partclone.restore -q -C -s - -o {target} 2>/dev/null && sync {target}"
    )

    def store(self, folder, image, name):
        root = root_of(image)
        if root.kind not in PARTCLONE:
            raise BenchError(f"partclone does not know {root.kind} of {image.name}")
        window = ("--offset", str(root.start), "--sizelimit", str(root.length))
        loop = system.run("losetup", "--read-only", "--find", "--show", *window, image).text.strip()
        try:
            return self._run(self.store_script, folder, image=loop, name=name, program=PARTCLONE[root.kind])
        finally:
            system.run("losetup", "--detach", loop)

    def restore(self, folder, image, name, target):
        length = root_of(image).length
        return self._run(self.restore_script, folder, name=name, target=target, length=str(length))


def root_of(image):
    """Returns the largest partition of an image."""
    try:
        table = json.loads(system.run("sfdisk", "--json", image).text)["partitiontable"]
        largest = max(table["partitions"], key=lambda part: part["size"])
        start, length = largest["start"] * SECTOR_BYTES, largest["size"] * SECTOR_BYTES
    except BenchError:
        start, length = 0, image.stat().st_size
    probed = system.run("blkid", "--probe", "--offset", str(start), "--output", "value", "--match-tag", "TYPE", image)
    return Root(start, length, probed.text.strip())


PLAIN = (Zstd, ZstdFast, ZstdSmallest, Qcow2, Qcow2Smallest, Partclone)
