"""Prints what the kernel shows of a mounted folder, a line for each path: view.py FOLDER."""
import fcntl
import os
import stat
import struct
import sys
import zlib

FIEMAP = 0xC020660B
UNWRITTEN, SHARED, INLINE = 0x800, 0x2000, 0x200
WHOLE_BYTES_MAX = 64 << 20


def extents(file):
    """Returns offset, length, place and kind of each extent; neighbours are joined."""
    found, start = [], 0
    while True:
        request = struct.pack("=QQLLLL", start, 2**63 - 1 - start, 1, 0, 1000, 0) + bytes(56 * 1000)
        reply = bytearray(request)
        fcntl.ioctl(file, FIEMAP, reply, True)
        count = struct.unpack_from("=L", reply, 20)[0]
        if count == 0:
            return found
        for index in range(count):
            offset, place, length, _, _, flags = struct.unpack_from("=QQQQQL", reply, 32 + 56 * index)
            kind = "u" if flags & UNWRITTEN else "s" if flags & SHARED else "w"
            last = found[-1] if found else None
            if last and last[0] + last[1] == offset and last[2] + last[1] == place and last[3] == kind:
                last[1] += length
            else:
                found.append([offset, length, place, kind])
            start = offset + length
            if flags & 1:
                return found


def content(file, size, runs):
    """Returns the CRC-32 of the content, or of its written parts where it is long."""
    if size <= WHOLE_BYTES_MAX:
        return zlib.crc32(os.pread(file, size, 0) if size else b"")
    total = 0
    for offset, length, _, kind in runs:
        if kind != "u":
            total = zlib.crc32(os.pread(file, min(length, size - offset), offset), total)
    return total


def line(path):
    about = os.lstat(path)
    kind = stat.S_IFMT(about.st_mode) >> 12
    times = f"{about.st_atime_ns} {about.st_mtime_ns} {about.st_ctime_ns}"
    parts = [
        f"{about.st_ino} {kind:o} {about.st_mode & 0o7777:o} {about.st_uid} {about.st_gid} {about.st_nlink}",
        f"{about.st_blocks * 512} {times}",
    ]
    if stat.S_ISREG(about.st_mode):
        file = os.open(path, os.O_RDONLY | os.O_NOATIME)
        runs = extents(file)
        parts.append(f"{about.st_size} {content(file, about.st_size, runs):08x}")
        parts.append(",".join(f"{o}+{n}@{p}{k}" for o, n, p, k in runs))
        os.close(file)
    elif stat.S_ISLNK(about.st_mode):
        parts.append(os.readlink(path).hex())
    elif stat.S_ISCHR(about.st_mode) or stat.S_ISBLK(about.st_mode):
        parts.append(f"{os.major(about.st_rdev)}:{os.minor(about.st_rdev)}")
    for name in sorted(os.listxattr(path, follow_symlinks=False)):
        if not name.startswith("trusted.SGI_ACL_"):
            value = os.getxattr(path, name, follow_symlinks=False)
            parts.append(f"{os.fsencode(name).hex()}={value.hex()}")
    return " ".join(parts)


def main():
    root = os.fsencode(sys.argv[1])
    paths = [root]
    for folder, folders, files in os.walk(root):
        paths += [os.path.join(folder, name) for name in folders + files]
    for path in sorted(os.path.relpath(path, root) for path in paths):
        print(path.hex(), line(os.path.join(root, path)))


main()
