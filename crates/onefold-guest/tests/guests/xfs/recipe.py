"""Fills a folder with files of every kind: recipe.py FOLDER [NAMES [EXTENTS]]."""
import fcntl
import os
import socket
import sys

FICLONE = 0x40049409
FICLONERANGE = 0x4020940D


def write(path, *parts):
    """Writes parts, each an offset and bytes."""
    with open(path, "wb") as file:
        for offset, data in parts:
            file.seek(offset)
            file.write(data)


def noise(length, seed):
    return bytes((seed * 7 + index * 13 + index // 251) & 0xFF for index in range(min(length, 65536))) * (
        length // 65536 + 1
    )


def sizes(folder):
    for length in (0, 1, 4095, 4096, 4097, 100_000, 3_000_000):
        write(f"{folder}/size-{length}", (0, noise(length, length)[:length]))


def maps(folder, extents):
    write(f"{folder}/holes", (8192, b"a" * 5000), (1 << 20, b"b" * 70000), (3 << 20, b"c"))
    write(f"{folder}/sparse-5-gib", (5 << 30, b"the end"), (1 << 30, noise(200_000, 3)[:200_000]))
    with open(f"{folder}/unwritten", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
        file.seek(200_000)
        file.write(noise(50_000, 9)[:50_000])
    os.system(f"xfs_io -f -c 'pwrite -q 0 5000' -c 'falloc -k 0 2M' {folder}/past-the-end")
    with open(f"{folder}/fragments", "wb") as file:
        block = max(4096, os.statvfs(folder).f_bsize)
        for index in range(extents):
            file.seek(index * 2 * block)
            file.write(b"%08d" % index)
    os.truncate(f"{folder}/size-4097", 5 << 20)


def shared(folder):
    write(f"{folder}/original", (0, noise(2_000_000, 5)[:2_000_000]))
    try:
        with open(f"{folder}/original", "rb") as source, open(f"{folder}/clone", "wb") as clone:
            fcntl.ioctl(clone.fileno(), FICLONE, source.fileno())
    except OSError:
        os.unlink(f"{folder}/clone")
        return
    with open(f"{folder}/clone", "r+b") as clone:
        for offset in (0, 300_000, 1_900_000):
            clone.seek(offset)
            clone.write(noise(66_000, offset)[:66_000])


def kinds(folder):
    os.mkfifo(f"{folder}/fifo", 0o640)
    os.mknod(f"{folder}/character", 0o20600, os.makedev(10, 200))
    os.mknod(f"{folder}/block", 0o60660, os.makedev(259, 70000))
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(folder)
        listener.bind("socket")
        os.chdir(here)
    os.symlink("size-1", f"{folder}/link-short")
    os.symlink("x/" * 150 + "y", f"{folder}/link-middle")
    os.symlink("z" * 1023, f"{folder}/link-long")
    os.link(f"{folder}/size-1", f"{folder}/hard-link")
    write(f"{folder}/owned", (0, b"x"))
    os.chown(f"{folder}/owned", 70000, 4_000_000_000)
    os.chmod(f"{folder}/owned", 0o6751)
    os.utime(f"{folder}/owned", ns=(-86_400_000_000_000, 4_000_000_000_123_456_789))


def names(folder, count):
    for number in (3, 40, 299, count):
        os.mkdir(f"{folder}/names-{number}")
        for index in range(number):
            write(f"{folder}/names-{number}/file-{index:05}-{'n' * (index % 40)}", (0, b"x" * (index % 3)))
    for index in range(0, count, 3):
        os.unlink(f"{folder}/names-{count}/file-{index:05}-{'n' * (index % 40)}")
    odd = [b"new\nline", b"\x1b[31mred", b"\xff\xfe", b"-", b" ", "häßlich".encode(), b"n" * 255]
    os.mkdir(f"{folder}/odd")
    for name in odd:
        write(os.path.join(os.fsencode(folder), b"odd", name), (0, name))
    deep = folder
    for level in range(40):
        deep += f"/level-{level:02}"
        os.mkdir(deep)
    write(f"{deep}/bottom", (0, b"here"))


def attributes(folder):
    for label, count, length in (("few", 2, 10), ("leaf", 20, 60), ("many", 900, 90), ("large", 2, 60_000)):
        path = f"{folder}/attributes-{label}"
        write(path, (0, b"a"))
        for index in range(count):
            os.setxattr(path, f"user.name-{index:04}", noise(length, index)[:length])
    write(f"{folder}/acl", (0, b"a"))
    os.system(f"setfacl -m u:1234:rw,g:77:r {folder}/acl; mkdir {folder}/acl-folder")
    os.system(f"setfacl -d -m u:1234:rwx {folder}/acl-folder")
    os.setxattr(f"{folder}/acl", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
    os.setxattr(f"{folder}/acl", "trusted.note", b"kept")


def main():
    folder = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    extents = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    sizes(folder)
    maps(folder, extents)
    shared(folder)
    kinds(folder)
    names(folder, count)
    attributes(folder)
    for index in range(200):
        write(f"{folder}/short-lived-{index}", (0, b"s" * 20_000))
    for index in range(200):
        os.unlink(f"{folder}/short-lived-{index}")


main()
