#!/usr/bin/env python3
"""Does the same random operations in two directories and compares what comes of them.

    model.py TESTED REFERENCE [--seed N] [--operations N] [--examine EVERY COMMAND...]

TESTED lies in a pool, REFERENCE on a file system that is trusted. Both must hold
the same at the start, and may hold much. After each operation its result is
compared (a failure by its errno), from time to time and at the end all names,
attributes and contents are. After so many operations as EVERY says, COMMAND must
succeed: it examines the pool. The seed names the operations; a difference prints it
and the last operations.
"""

import argparse
import collections
import ctypes
import hashlib
import os
import random
import stat
import subprocess
import sys

BLOCK = 4096
NAMES = ["a", "b", "c", "d", "e", "f", "long" * 60]
FILE_BYTES_MAX = 8 << 20
OPEN_MAX = 12
COMPARE_EVERY = 400
FALLOC_MODES = {"allocate": 0, "keep size": 1, "punch": 1 | 2, "zero": 16, "zero, keep size": 16 | 1}
RENAME_FLAGS = {"": 0, "no replace": 1, "exchange": 2}

libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Side:
    """One of the two directories, with its open files."""

    def __init__(self, root):
        self.root = root
        self.fds = {}

    def path(self, name):
        return os.path.join(self.root, name)

    # Operations. What they return is compared.

    def create(self, name):
        os.close(os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))

    def open(self, name, handle, flags):
        self.fds[handle] = os.open(self.path(name), flags, 0o600)

    def close(self, handle):
        os.close(self.fds.pop(handle))

    def write(self, handle, offset, data):
        return os.pwrite(self.fds[handle], data, offset)

    def read(self, handle, offset, length):
        return os.pread(self.fds[handle], length, offset)

    def truncate(self, handle, length):
        os.ftruncate(self.fds[handle], length)

    def fsync(self, handle):
        os.fsync(self.fds[handle])

    def fallocate(self, handle, mode, offset, length):
        arguments = ctypes.c_int64(offset), ctypes.c_int64(length)
        checked(libc.fallocate(self.fds[handle], FALLOC_MODES[mode], *arguments))

    def copy_range(self, source, source_offset, target, target_offset, length):
        done = 0
        while done < length:
            copied = os.copy_file_range(
                self.fds[source], self.fds[target], length - done, source_offset + done, target_offset + done
            )
            if copied == 0:
                break
            done += copied
        return done

    def mkdir(self, name):
        os.mkdir(self.path(name), 0o755)

    def rmdir(self, name):
        os.rmdir(self.path(name))

    def unlink(self, name):
        os.unlink(self.path(name))

    def link(self, old, new):
        os.link(self.path(old), self.path(new), follow_symlinks=False)

    def rename(self, old, new, flags):
        old, new = os.fsencode(self.path(old)), os.fsencode(self.path(new))
        checked(libc.renameat2(-100, old, -100, new, RENAME_FLAGS[flags]))

    def symlink(self, target, name):
        os.symlink(target, self.path(name))

    def mkfifo(self, name):
        os.mkfifo(self.path(name), 0o600)

    def chmod(self, name, mode):
        os.chmod(self.path(name), mode)

    def chown(self, name, owner, group):
        os.lchown(self.path(name), owner, group)

    def set_times(self, name, accessed, modified):
        os.utime(self.path(name), ns=(accessed, modified), follow_symlinks=False)

    def set_attribute(self, name, attribute, value, flags):
        os.setxattr(self.path(name), attribute, value, flags, follow_symlinks=False)

    def remove_attribute(self, name, attribute):
        os.removexattr(self.path(name), attribute, follow_symlinks=False)

    def list(self, name):
        return sorted(os.listdir(self.path(name)))

    def facts(self, name):
        """What can be said of a file without reading it."""
        found = os.lstat(self.path(name))
        facts = [oct(found.st_mode), found.st_nlink, found.st_uid, found.st_gid]
        if not stat.S_ISDIR(found.st_mode):
            # How large a directory is, is its own affair.
            facts.append(found.st_size)
        if stat.S_ISLNK(found.st_mode):
            facts.append(os.readlink(self.path(name)))
        attributes = sorted(os.listxattr(self.path(name), follow_symlinks=False))
        facts += [(key, os.getxattr(self.path(name), key, follow_symlinks=False)) for key in attributes]
        return facts

    def modified(self, name):
        return os.lstat(self.path(name)).st_mtime_ns

    def tree(self):
        """All of it: facts by name, and digests of contents."""
        found = {}
        inodes = collections.defaultdict(list)
        for folder, directories, files in os.walk(self.root):
            for name in [*directories, *files]:
                path = os.path.join(folder, name)
                relative = os.path.relpath(path, self.root)
                found[relative] = self.facts(relative)
                status = os.lstat(path)
                if not stat.S_ISDIR(status.st_mode):
                    inodes[status.st_ino].append(relative)
                if stat.S_ISREG(status.st_mode):
                    with open(path, "rb") as file:
                        found[relative].append(hashlib.file_digest(file, "sha256").hexdigest())
        # Which names are one file.
        found["links"] = sorted(sorted(names) for names in inodes.values() if len(names) > 1)
        return found


class Difference(Exception):
    pass


def outcome(side, operation, arguments):
    try:
        return getattr(side, operation)(*arguments)
    except OSError as error:
        return f"errno {error.errno} ({error.strerror})"


class Model:
    def __init__(self, sides, seed):
        self.sides = sides
        self.chance = random.Random(seed)
        self.handles = []
        self.next_handle = 0
        self.history = collections.deque(maxlen=25)
        self.failures = 0
        # Contents that come again and again, so that blocks are shared, in one file and among many.
        self.contents = [random.Random(number).randbytes(BLOCK) for number in range(24)] + [bytes(BLOCK)] * 8

    def both(self, operation, *arguments):
        shown = [f"{len(a)} bytes" if isinstance(a, bytes) and len(a) > 40 else a for a in arguments]
        tested, reference = (outcome(side, operation, arguments) for side in self.sides)
        said = repr(reference) if len(repr(reference)) < 80 else "..."
        self.history.append(f"{operation}{tuple(shown)} -> {said}")
        if tested != reference:
            raise Difference(f"{operation}{tuple(shown)}\n  pool:      {tested!r:.2000}\n  reference: {reference!r:.2000}")
        failed = isinstance(reference, str) and reference.startswith("errno")
        self.failures += failed
        return not failed

    def name(self):
        depth = self.chance.choice([1, 1, 2, 2, 2, 3])
        return "/".join(self.chance.choice(NAMES) for _ in range(depth))

    def offset(self):
        end = self.chance.choice([BLOCK, 16 * BLOCK, 1 << 20, FILE_BYTES_MAX])
        offset = self.chance.randrange(end)
        return offset // BLOCK * BLOCK if self.chance.random() < 0.5 else offset

    def data(self):
        blocks = self.chance.choice([1, 1, 1, 2, 5, 16, 64])
        data = b"".join(self.chance.choice(self.contents) for _ in range(blocks))
        return data if self.chance.random() < 0.6 else data[self.chance.randrange(BLOCK) :]

    def handle(self):
        return self.chance.choice(self.handles)

    def close(self, handle):
        self.handles.remove(handle)
        self.both("close", handle)

    def open(self):
        flags = os.O_RDWR
        for flag in (os.O_CREAT, os.O_CREAT, os.O_TRUNC, os.O_SYNC):
            flags |= flag if self.chance.random() < 0.3 else 0
        # A fifo would wait for its other end.
        if self.both("open", self.name(), self.next_handle, flags | os.O_NONBLOCK):
            self.handles.append(self.next_handle)
        self.next_handle += 1
        if len(self.handles) > OPEN_MAX:
            self.close(self.handle())

    def on_a_file(self):
        handle = self.handle()
        kind = self.chance.random()
        if kind < 0.5:
            self.both("write", handle, self.offset(), self.data())
        elif kind < 0.65:
            self.both("read", handle, self.offset(), self.chance.choice([1, BLOCK, 100_000, 1 << 20]))
        elif kind < 0.72:
            self.both("truncate", handle, self.offset())
        elif kind < 0.85:
            mode = self.chance.choice(list(FALLOC_MODES))
            self.both("fallocate", handle, mode, self.offset(), self.chance.randrange(1, 1 << 18))
        elif kind < 0.95:
            self.both("copy_range", handle, self.offset(), self.handle(), self.offset(), self.chance.randrange(1 << 20))
        else:
            self.both("fsync", handle)

    def on_a_name(self):
        attribute = "user." + self.chance.choice("xyz")
        value = self.chance.randbytes(self.chance.choice([0, 10, 300]))
        times = self.chance.randrange(-(10**18), 10**19), self.chance.randrange(10**18)
        flags = self.chance.choice(list(RENAME_FLAGS))
        chosen = self.chance.choice(
            [
                ("create", self.name()),
                ("mkdir", self.name()),
                ("mkdir", self.chance.choice(NAMES)),
                ("rmdir", self.name()),
                ("unlink", self.name()),
                ("unlink", self.name()),
                ("link", self.name(), self.name()),
                ("rename", self.name(), self.name(), flags),
                ("rename", self.name(), self.name(), ""),
                ("symlink", self.name(), self.name()),
                ("mkfifo", self.name()),
                ("chmod", self.name(), self.chance.choice([0o600, 0o755, 0o4711, 0o1777])),
                ("chown", self.name(), self.chance.randrange(3), self.chance.randrange(3)),
                ("set_times", self.name(), *times),
                ("set_attribute", self.name(), attribute, value, self.chance.choice([0, 0, 1, 2])),
                ("remove_attribute", self.name(), attribute),
                ("list", self.name()),
                ("facts", self.name()),
            ]
        )
        if self.both(*chosen) and chosen[0] == "set_times":
            self.both("modified", chosen[1])

    def step(self):
        kind = self.chance.random()
        if not self.handles or kind < 0.1:
            self.open()
        elif kind < 0.15:
            self.close(self.handle())
        elif kind < 0.55:
            self.on_a_file()
        else:
            self.on_a_name()

    def compare(self):
        tested, reference = (side.tree() for side in self.sides)
        for name in sorted(tested.keys() | reference.keys()):
            if tested.get(name) != reference.get(name):
                raise Difference(f"`{name}`\n  pool:      {tested.get(name)}\n  reference: {reference.get(name)}")
        return len(reference) - 1

    def examine(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise Difference(f"{command} ended with {done.returncode}: {done.stdout}")

    def run(self, operations, every, command):
        for number in range(operations):
            self.step()
            if every and number % every == every - 1:
                self.examine(command)
            if number % COMPARE_EVERY == COMPARE_EVERY - 1:
                self.compare()
        for handle in list(self.handles):
            self.close(handle)
        return self.compare()


def main():
    parser = argparse.ArgumentParser(description="compare two file systems by random operations")
    parser.add_argument("tested")
    parser.add_argument("reference")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--examine", nargs="+", default=["0"], metavar=("EVERY", "COMMAND"))
    options = parser.parse_args()
    os.umask(0o022)
    model = Model([Side(options.tested), Side(options.reference)], options.seed)
    try:
        files = model.run(options.operations, int(options.examine[0]), options.examine[1:])
    except Difference as difference:
        print("the last operations:", *model.history, sep="\n  ")
        sys.exit(f"seed {options.seed}: the pool differs: {difference}")
    print(f"note: seed {options.seed}: {options.operations} operations, {model.failures} refused alike, {files} files at the end")


if __name__ == "__main__":
    main()
