"""File systems of a disk: where they lie, what their own checkers say, and what files they hold.

Onefold tells where volumes lie; the kernel reads ext, XFS and Btrfs, and ntfs-3g reads NTFS. Files of FAT, which this
kernel may lack, are read by `onefold guest tar`.
"""

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass

from lib import Failed, call, ignored, run

# What checks a file system without changing it, by the name that Onefold has for it.
CHECKERS = {
    "ext2": ("e2fsck", "-fn"),
    "ext3": ("e2fsck", "-fn"),
    "ext4": ("e2fsck", "-fn"),
    "xfs": ("xfs_repair", "-n", "-f"),
    "btrfs": ("btrfs", "check", "--readonly"),
    "ntfs": ("ntfsfix", "-n"),
    "fat12": ("fsck.fat", "-n"),
    "fat16": ("fsck.fat", "-n"),
    "fat32": ("fsck.fat", "-n"),
}
# How one is mounted for reading, without a replay of its journal.
MOUNTS = {
    "ext2": ("mount", "-t", "ext4", "-o", "ro,noload"),
    "ext3": ("mount", "-t", "ext4", "-o", "ro,noload"),
    "ext4": ("mount", "-t", "ext4", "-o", "ro,noload"),
    "xfs": ("mount", "-t", "xfs", "-o", "ro,norecovery,nouuid"),
    "btrfs": ("mount", "-t", "btrfs", "-o", "ro"),
    "ntfs": ("ntfs-3g", "-o", "ro"),
}
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Volume:
    """A volume with a file system, and its ranges on the disk: start and length of each, in the order of the volume."""

    name: str
    kind: str
    ranges: tuple


@dataclass(frozen=True)
class Look:
    """What a look at a volume has found."""

    kind: str
    # Exit code of the checker.
    verdict: int
    said: str
    # A digest of each file and of what is known of it, by its path.
    files: dict


def volumes_of(onefold, image):
    """Returns the file systems of a disk that have a checker."""
    told = json.loads(call(onefold, "guest", "info", "--json", "--quiet", image))["images"][0]
    named = ((kind_of(one["holds"]), one) for one in told["volumes"])
    found = [Volume(one["volume"], kind, tuple(map(tuple, one["ranges"]))) for kind, one in named]
    return [volume for volume in found if volume.kind in CHECKERS]


def kind_of(holds):
    """Returns the name of a file system: one that is recognised and not read is told as "Btrfs, UUID ..."."""
    return holds.split(",")[0].lower()


def look(onefold, image, folder):
    """Checks all file systems of a disk and reads all their files; returns a Look for each volume by its name."""
    looks = {}
    for volume in volumes_of(onefold, image):
        with device_of(image, volume, folder) as device:
            done = run([*CHECKERS[volume.kind], device])
            files = files_of(onefold, device, volume.kind, folder)
            looks[volume.name] = Look(volume.kind, done.returncode, done.stdout + done.stderr, files)
    return looks


@contextmanager
def device_of(image, volume, folder):
    """Has a volume on a read-only loop device: a window of the disk, or of a copy where it lies in several ranges."""
    copy = folder / "volume"
    if len(volume.ranges) == 1:
        file, (start, length) = image, volume.ranges[0]
    else:
        put_together(image, volume.ranges, copy)
        file, start, length = copy, 0, copy.stat().st_size
    window = ("--offset", start, "--sizelimit", length)
    device = call("losetup", "--read-only", "--find", "--show", *window, file).strip()
    try:
        yield device
    finally:
        ignored("losetup", "--detach", device)
        copy.unlink(missing_ok=True)


def put_together(image, ranges, target):
    """Makes a file of ranges of a disk, one after the other."""
    with open(image, "rb") as disk, open(target, "wb") as file:
        for start, length in ranges:
            disk.seek(start)
            left = length
            while left > 0:
                part = disk.read(min(left, READ_BYTES))
                if not part:
                    raise Failed(f"{image} ends within a volume")
                file.write(part)
                left -= len(part)


def files_of(onefold, device, kind, folder):
    """Returns a digest of each file of a file system by its path."""
    if kind not in MOUNTS:
        return files_of_tar(call_bytes(onefold, "guest", "tar", "--quiet", device, "/"))
    mountpoint = folder / "mounted"
    mountpoint.mkdir()
    call(*MOUNTS[kind], device, mountpoint)
    try:
        return files_below(mountpoint)
    finally:
        ignored("umount", mountpoint)
        mountpoint.rmdir()


def files_below(root):
    """Returns a digest of each file below a folder: of its kind, rights, owner, times, and content or target."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            digest = hashlib.sha256(repr((status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns)).encode())
            if stat.S_ISLNK(status.st_mode):
                digest.update(os.fsencode(os.readlink(path)))
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    while part := file.read(READ_BYTES):
                        digest.update(part)
            found[os.path.relpath(path, root)] = digest.hexdigest()
    return found


def files_of_tar(archive):
    """Returns the same of a tar archive."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            digest = hashlib.sha256(repr((member.type, member.mode, member.mtime, member.linkname)).encode())
            if member.isreg():
                shutil.copyfileobj(members.extractfile(member), Sink(digest))
            found[member.name] = digest.hexdigest()
    return found


class Sink:
    """A file that puts all that is written into a digest."""

    def __init__(self, digest):
        self.write = digest.update


def call_bytes(*command):
    """Runs a tool that must succeed, and returns what it wrote."""
    done = run(command, is_text=False)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(done.args)}` ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def compare(name, before, after):
    """Returns how many file systems and files came back. Raises Failed where one differs in anything."""
    if set(before) != set(after):
        raise Failed(f"{name}: volumes {sorted(before)} came back as {sorted(after)}")
    if not before:
        raise Failed(f"{name}: there is no file system that can be checked")
    for volume, one in before.items():
        other = after[volume]
        where = f"{name}, {volume}"
        if (one.kind, one.verdict) != (other.kind, other.verdict):
            verdicts = f"the checker ended with {one.verdict} before and {other.verdict} after"
            raise Failed(f"{where}: {verdicts}: {other.said}")
        if not one.files:
            raise Failed(f"{where}: no files were read")
        paths = one.files.keys() | other.files.keys()
        differ = sorted(path for path in paths if one.files.get(path) != other.files.get(path))
        if differ:
            raise Failed(f"{where}: {len(differ)} files differ: {differ[:5]}")
    return len(before), sum(len(one.files) for one in before.values())
