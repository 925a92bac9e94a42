#!/usr/bin/env python3
"""Which call brings which times of a file and of its directories up to date.

    times.py DIRECTORY

The table says for each call what POSIX and Linux make it change: a(ccess), m(odification) and c(hange) of the file, of
its directory, and of a second directory or file. Everything else must stay as it was, but access times may move.
"""

import ctypes
import mmap
import os
import sys
import time

PAST = 10**18
RENAME_EXCHANGE = 2
PUNCH_HOLE_KEEP_SIZE = 3

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def write(path, data=b"x", flags=0):
    fd = os.open(path, os.O_WRONLY | flags)
    os.write(fd, data)
    os.close(fd)


def read(path):
    # Past the page cache: what that answers, a FUSE file system does not hear of.
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    os.preadv(fd, [mmap.mmap(-1, 4096)], 0)
    os.close(fd)


def map_and_write(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0] = 7
        memory.flush()


def fallocate(path, mode, offset, length):
    fd = os.open(path, os.O_RDWR)
    call("fallocate", fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length))
    os.close(fd)


def copy_range(source, target):
    one, two = os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY)
    os.copy_file_range(one, two, 4096)
    os.close(one)
    os.close(two)


def exchange(one, two):
    at_cwd = -100
    call("renameat2", at_cwd, os.fsencode(one), at_cwd, os.fsencode(two), RENAME_EXCHANGE)


# Call, and what it changes of: the file d/f, its directory d, the directory e, the file e/g. Access times are relatime's:
# a read after a change moves them.
TABLE = [
    ("read", lambda: read("d/f"), "a", "", "", ""),
    ("write", lambda: write("d/f"), "mc", "", "", ""),
    ("append", lambda: write("d/f", flags=os.O_APPEND), "mc", "", "", ""),
    ("write of nothing", lambda: write("d/f", b""), "", "", "", ""),
    ("write to a mapping", lambda: map_and_write("d/f"), "mc", "", "", ""),
    ("truncate to less", lambda: os.truncate("d/f", 10), "mc", "", "", ""),
    ("truncate to more", lambda: os.truncate("d/f", 100_000), "mc", "", "", ""),
    ("open with O_TRUNC", lambda: write("d/f", b"", os.O_TRUNC), "mc", "", "", ""),
    ("fallocate", lambda: fallocate("d/f", 0, 0, 1 << 20), "mc", "", "", ""),
    ("punch", lambda: fallocate("d/f", PUNCH_HOLE_KEEP_SIZE, 0, 4096), "mc", "", "", ""),
    ("copy_file_range", lambda: copy_range("e/g", "d/f"), "mc", "", "", ""),
    ("chmod", lambda: os.chmod("d/f", 0o600), "c", "", "", ""),
    ("chown", lambda: os.chown("d/f", 7, 8), "c", "", "", ""),
    ("setxattr", lambda: os.setxattr("d/f", "user.a", b"1"), "c", "", "", ""),
    ("removexattr", lambda: os.removexattr("d/f", "user.old"), "c", "", "", ""),
    ("getxattr", lambda: os.getxattr("d/f", "user.old"), "", "", "", ""),
    ("stat", lambda: os.stat("d/f"), "", "", "", ""),
    ("utime", lambda: os.utime("d/f"), "amc", "", "", ""),
    ("create", lambda: write("d/new", flags=os.O_CREAT), "", "mc", "", ""),
    ("mkdir", lambda: os.mkdir("d/new"), "", "mc", "", ""),
    ("rmdir", lambda: os.rmdir("d/empty"), "", "mc", "", ""),
    ("mkfifo", lambda: os.mkfifo("d/new"), "", "mc", "", ""),
    ("symlink", lambda: os.symlink("x", "d/new"), "", "mc", "", ""),
    ("link", lambda: os.link("d/f", "e/new"), "c", "", "mc", ""),
    ("unlink of one of two names", lambda: os.unlink("d/second"), "", "mc", "", "c"),
    ("rename within", lambda: os.rename("d/f", "d/renamed"), "c", "mc", "", ""),
    ("rename", lambda: os.rename("d/f", "e/new"), "c", "mc", "mc", ""),
    ("rename over", lambda: os.rename("d/second", "e/other"), "", "mc", "mc", "c"),
    ("exchange", lambda: exchange("d/f", "e/g"), "c", "mc", "mc", "c"),
    ("refused create", lambda: refused(lambda: os.mkdir("d/f")), "", "", "", ""),
    ("refused unlink", lambda: refused(lambda: os.unlink("d/empty")), "", "", "", ""),
    ("refused rename", lambda: refused(lambda: os.rename("d/f", "d/empty")), "", "", "", ""),
    ("refused rmdir", lambda: refused(lambda: os.rmdir("e")), "", "", "", ""),
]


def refused(wrong):
    try:
        wrong()
    except OSError:
        return
    raise AssertionError("it must fail")


def times(fd):
    found = os.fstat(fd)
    return {"a": found.st_atime_ns, "m": found.st_mtime_ns, "c": found.st_ctime_ns}


def try_call(number, entry):
    name, function, *wanted = entry
    folder = f"times-{number}"
    os.mkdir(folder)
    os.chdir(folder)
    os.mkdir("d")
    os.mkdir("e")
    os.mkdir("d/empty")
    for path in ("d/f", "e/g", "e/other"):
        write(path, b"y" * 8192, os.O_CREAT)
    os.setxattr("d/f", "user.old", b"1")
    # A second name of g, in the other directory.
    os.link("e/g", "d/second")
    watched = [os.open(path, os.O_RDONLY) for path in ("d/f", "d", "e", "e/g")]
    for fd in watched:
        os.utime(fd, ns=(PAST, PAST))
    before = [times(fd) for fd in watched]
    # With the writeback cache the kernel keeps times itself, by a clock that ticks a few times in a hundredth of a second.
    time.sleep(0.02)
    function()
    wrong = []
    for fd, path, old, changes in zip(watched, ("d/f", "d", "e", "e/g"), before, wanted):
        new = times(fd)
        moved = "".join(kind for kind in "amc" if new[kind] != old[kind])
        # Looking something up reads directories, and a change may read before it writes.
        if path != "d/f" or "a" not in changes:
            moved, changes = moved.replace("a", ""), changes.replace("a", "")
        if moved != changes:
            wrong.append(f"wrong: {name} changed `{moved}` of {path}, not `{changes}`")
        if any(new[kind] < old[kind] for kind in "amc"):
            wrong.append(f"wrong: {name} set a time of {path} back")
        os.close(fd)
    os.chdir("..")
    return wrong


def main():
    os.chdir(sys.argv[1])
    wrong = [line for number, entry in enumerate(TABLE) for line in try_call(number, entry)]
    print("\n".join(wrong))
    print(f"note: the times of {len(TABLE)} calls, {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
