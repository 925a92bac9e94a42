"""The paper's prototype as a script: prototype.py COMMON WORK TEMPLATE OFFSET MACHINE...

COMMON is an empty ext4 in a file, which becomes the common volume; file systems are mounted in WORK.

Its three components, one machine after the other. The File System Agent mounts a machine's disk read-only and takes the
files of those packages that the installation log has and the template's has not. The Storage Agent hashes each file,
keeps files that two machines have in a common volume, and asks debugfs for their blocks. Storage, which was a changed
LVM with an ioctl of its own, is FICLONERANGE here: it changes the map of a disk without a look at what was there.

It prints one JSON object: seconds of finding (mounts, logs, hashes, debugfs) and of sharing (copies into the common
volume, changes of the map), and what came of them.
"""

import fcntl
import hashlib
import json
import os
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fbs_rows import ext  # noqa: E402
from lib import device  # noqa: E402

# Of linux/fs.h.
FICLONERANGE = 0x4020940D
LOG = "var/log/dpkg.log"
INFO = "var/lib/dpkg/info"
PIECE_BYTES = 1 << 20


class Clock:
    """Seconds by what they were spent on."""

    def __init__(self):
        self.seconds = {"find": 0.0, "share": 0.0}

    @contextmanager
    def of(self, what):
        started = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - started


@contextmanager
def mounted(image, mountpoint, *options, offset=0):
    """Has a file system mounted meanwhile. Afterwards all is in the image, and no mount namespace has it mounted."""
    mountpoint.mkdir(exist_ok=True)
    words = ("losetup", f"--offset={offset}", "--show", "--find", image)
    loop = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    try:
        subprocess.run(["mount", "-o", ",".join(options), loop, mountpoint], check=True)
        try:
            yield mountpoint
        finally:
            subprocess.run(["umount", mountpoint], check=True)
            device.wait_until_unused(loop)
    finally:
        subprocess.run(["losetup", "--detach", loop], check=True)


class FileSystemAgent:
    """Step 1: which files of a machine were installed after the snapshot."""

    def __init__(self, template_log):
        self._known = set(template_log.splitlines())

    def new_files(self, root):
        """Returns the regular files of new packages, by their paths in the guest."""
        found = []
        for name in self._new_packages(root):
            lists = [root / INFO / f"{word}.list" for word in (name, name.split(":")[0])]
            for line in next((path.read_text(encoding="utf-8").splitlines() for path in lists if path.exists()), []):
                path = root / line.lstrip("/")
                if path.is_file() and not path.is_symlink() and path.stat().st_size:
                    found.append(line)
        return list(dict.fromkeys(found))

    def _new_packages(self, root):
        path = root / LOG
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        words = (line.split() for line in lines if line not in self._known)
        return list(dict.fromkeys(word[3] for word in words if len(word) > 3 and word[2] in ("install", "upgrade")))


class StorageAgent:
    """Step 2: compares files by their hashes, and keeps those of two machines in the common volume."""

    def __init__(self, common):
        self._common = common
        # The first machine that had a content, and where; contents of the common volume.
        self._first = {}
        self._kept = set()

    def compare(self, image, root, paths, clock):
        """Returns what is to be shared: triples of an image, a path in its guest, and a digest."""
        wanted, copies = [], []
        with clock.of("find"):
            for path in paths:
                digest = md5(root / path.lstrip("/"))
                if digest in self._kept:
                    wanted.append((image, path, digest))
                elif digest not in self._first:
                    self._first[digest] = (image, path)
                elif self._first[digest][0] != image:
                    wanted += [(*self._first[digest], digest), (image, path, digest)]
                    copies.append((root / path.lstrip("/"), digest))
                    self._kept.add(digest)
        with clock.of("share"):
            for source, digest in copies:
                copy(source, self._common / name_of(digest))
        return wanted


def name_of(digest):
    return f"{digest[:2]}/{digest[2:]}"


def md5(path):
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def copy(source, target):
    target.parent.mkdir(exist_ok=True)
    with open(source, "rb") as one, open(target, "wb") as other:
        while piece := one.read(PIECE_BYTES):
            other.write(piece)


def blocks_of(image, paths, offset=0):
    """Returns the runs of files by debugfs, one process for all of them."""
    commands = "".join(f'stat "{path}"\n' for path in paths)
    words = ["debugfs", "-f", "-", f"{image}?offset={offset}"]
    told = subprocess.run(words, input=commands, check=True, capture_output=True, text=True).stdout
    return [ext.parse_stat(part).runs for part in told.split("debugfs: stat ")[1:]]


class Storage:
    """Step 3: changes the map of a machine's disk."""

    def __init__(self, common, offset):
        self._common = os.open(common, os.O_RDONLY)
        self._offset = offset
        self.calls = self.shared_bytes = 0

    def remap(self, image, pairs):
        """Has files of an image lie where the common volume has them; pairs are of runs in both."""
        file = os.open(image, os.O_RDWR)
        try:
            for own, common in pairs:
                for place, source, count in overlaps(own, common):
                    length = count * ext.BLOCK_BYTES
                    target = self._offset + place * ext.BLOCK_BYTES
                    request = struct.pack("=qQQQ", self._common, source * ext.BLOCK_BYTES, length, target)
                    fcntl.ioctl(file, FICLONERANGE, request)
                    self.calls += 1
                    self.shared_bytes += length
            os.fsync(file)
        finally:
            os.close(file)


def overlaps(own, common):
    """Yields where both have a part of a file: the places in one and in the other, and how many blocks."""
    for first, place, count in own:
        for first_there, place_there, count_there in common:
            start = max(first, first_there)
            length = min(first + count, first_there + count_there) - start
            if length > 0:
                yield place + start - first, place_there + start - first_there, length


def main(common, work, template, offset, machines):
    clock = Clock()
    with mounted(template, work / "prototype.mount", "ro", "noload", offset=offset) as root:
        log = root / LOG
        agent = FileSystemAgent(log.read_text(encoding="utf-8") if log.exists() else "")
    folder, files = work / "common.mount", 0
    storage_agent, storage = StorageAgent(folder), Storage(common, offset)
    for machine in machines:
        wanted = []
        with mounted(common, folder, "rw"):
            with mounted(machine, work / "prototype.mount", "ro", "noload", offset=offset) as root:
                with clock.of("find"):
                    paths = agent.new_files(root)
                wanted = storage_agent.compare(machine, root, paths, clock)
                files += len(paths)
        for image in dict.fromkeys(image for image, _, _ in wanted):
            own = [(path, digest) for other, path, digest in wanted if other == image]
            with clock.of("find"):
                there = blocks_of(image, [path for path, _ in own], offset)
                kept = blocks_of(common, [f"/{name_of(digest)}" for _, digest in own])
            with clock.of("share"):
                storage.remap(image, list(zip(there, kept, strict=True)))
    told = {"files": files, "calls": storage.calls, "shared_bytes": storage.shared_bytes}
    print(json.dumps(told | {"seconds_of": clock.seconds}))


if __name__ == "__main__":
    COMMON, WORK, TEMPLATE, OFFSET, *MACHINES = sys.argv[1:]
    main(Path(COMMON), Path(WORK), Path(TEMPLATE), int(OFFSET), [Path(machine) for machine in MACHINES])
