"""A process on a host that makes calls as it is told: one line of JSON in, [CALL, ARGUMENTS, NAMED], and one out.

Files are known by names that the caller gives them. Positions and lengths are in blocks of 4 KiB.
"""

import errno
import fcntl
import json
import mmap
import os
import signal
import sys
import threading
import time

import kernel
from contents import BLOCK_BYTES, parse, render, runs, unfold

LEASES = {"write": fcntl.F_WRLCK, "read": fcntl.F_RDLCK, "none": fcntl.F_UNLCK}
FLAGS = {"read": os.O_RDONLY, "write": os.O_RDWR, "create": os.O_RDWR | os.O_CREAT, "only write": os.O_WRONLY}


class Hand:
    def __init__(self):
        self.files = {}
        self.maps = {}
        self.breaks = 0
        signal.signal(signal.SIGIO, self.on_break)
        signal.signal(signal.SIGURG, self.on_break)

    def on_break(self, *_):
        self.breaks += 1

    # Files.

    def open(self, name, path, how="create", nonblocking=False):
        started = time.monotonic()
        flags = FLAGS[how] | os.O_CLOEXEC | (os.O_NONBLOCK if nonblocking else 0)
        self.files[name] = os.open(path, flags, 0o600)
        return time.monotonic() - started

    def close(self, name):
        os.close(self.files.pop(name))

    def make(self, name, path, told, sync=True):
        """A file with these contents, which stays open."""
        self.open(name, path)
        os.ftruncate(self.files[name], 0)
        self.write(name, 0, told)
        if sync:
            os.fsync(self.files[name])

    def write(self, name, block, told):
        data = render(unfold(told))
        done = os.pwrite(self.files[name], data, block * BLOCK_BYTES)
        if done != len(data):
            raise OSError(errno.EIO, f"{done} bytes of {len(data)} written")

    def write_direct(self, path, block, told):
        """Writes past the page cache, as machines do."""
        data = render(unfold(told))
        memory = mmap.mmap(-1, len(data))
        memory.write(data)
        file = os.open(path, os.O_RDWR | os.O_DIRECT)
        done = os.pwrite(file, memory, block * BLOCK_BYTES)
        os.fsync(file)
        os.close(file)
        if done != len(data):
            raise OSError(errno.EIO, f"{done} bytes of {len(data)} written")

    def set_modified(self, name, nanoseconds):
        os.utime(self.files[name], ns=(nanoseconds, nanoseconds))

    def read(self, name, block=0, count=1 << 20):
        """What blocks hold, in runs."""
        numbers, piece = [], 256
        while count > 0:
            data = os.pread(self.files[name], min(piece, count) * BLOCK_BYTES, block * BLOCK_BYTES)
            if not data:
                break
            found = parse(data)
            numbers += found
            block, count = block + len(found), count - len(found)
        return runs(numbers)

    def map(self, name, path):
        """Maps a file for writing, and closes it."""
        file = os.open(path, os.O_RDWR)
        self.maps[name] = mmap.mmap(file, 0)
        os.close(file)

    def unmap(self, name):
        self.maps.pop(name).close()

    def fsync(self, name):
        os.fsync(self.files[name])

    def fdatasync(self, name):
        os.fdatasync(self.files[name])

    def syncfs(self, name):
        kernel.sync_file_system(self.files[name])

    def truncate(self, name, blocks):
        os.ftruncate(self.files[name], blocks * BLOCK_BYTES)

    def punch(self, name, block, count):
        kernel.punch(self.files[name], block * BLOCK_BYTES, count * BLOCK_BYTES)

    def punch_unseen(self, path, ranges):
        """Makes holes of ranges in bytes as a host leaves them that dies while it shares: the times of the file stay."""
        file = os.open(path, os.O_RDWR)
        stat = os.fstat(file)
        for at, length in ranges:
            kernel.punch(file, at, length)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        os.fsync(file)
        os.close(file)

    def allocate(self, name, block, count):
        kernel.allocate(self.files[name], block * BLOCK_BYTES, count * BLOCK_BYTES)

    def mkdir(self, path):
        os.makedirs(path, exist_ok=True)

    def unlink(self, path):
        os.unlink(path)

    def link(self, old, new):
        os.link(old, new)

    def rename(self, old, new):
        os.rename(old, new)

    def rename_again(self, folder, name, target, times):
        """Renames a new file over the target again and again. Returns which errors came how often."""
        errors = {}
        for number in range(times):
            path = f"{folder}/{name}.{number}"
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
            try:
                os.rename(path, f"{folder}/{target}")
            except OSError as error:
                key = name_of(error.errno)
                errors[key] = errors.get(key, 0) + 1
                os.unlink(path)
        return errors

    def nameless(self, folder):
        """A file without a name."""
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600))

    def stat(self, name):
        stat = os.fstat(self.files[name])
        return {"inode": stat.st_ino, "blocks": stat.st_blocks * 512 // BLOCK_BYTES, "mtime": stat.st_mtime_ns, "ctime": stat.st_ctime_ns}

    def blocks_free(self, path):
        return os.statvfs(path).f_bfree

    # Sharing.

    def clone(self, source, target, source_block=0, target_block=0, count=0):
        """Has the target refer to blocks of the source; with no count, all to its end."""
        places = (self.files[source], source_block * BLOCK_BYTES, self.files[target], target_block * BLOCK_BYTES)
        kernel.clone_range(*places, count * BLOCK_BYTES)

    def share(self, source, target, source_block=0, target_block=0, count=1):
        """Compares and shares. Returns "differs" or how many blocks the kernel says are done."""
        places = (self.files[source], source_block * BLOCK_BYTES, self.files[target], target_block * BLOCK_BYTES)
        done = kernel.share(*places, count * BLOCK_BYTES)
        return "differs" if done is None else done // BLOCK_BYTES

    def share_singly(self, source, target, first_number, blocks, stride):
        """Shares every STRIDEth block of two equal files. Tells how often which answer left the block how."""
        seen = {}
        for block in range(0, blocks, stride):
            try:
                said = self.share(source, target, block, block)
            except OSError as error:
                said = name_of(error.errno)
            found = parse(os.pread(self.files[target], BLOCK_BYTES, block * BLOCK_BYTES))[0]
            left = {first_number + block: "as it was", 0: "zeros"}.get(found, "something else")
            key = f"{'done' if said == 1 else said}, {left}"
            seen[key] = seen.get(key, 0) + 1
        return seen

    def fill(self, name, path):
        """Writes a file until there is no room for another block. Returns its blocks."""
        self.open(name, path)
        at = 0
        for count in (256, 16, 1):
            try:
                while True:
                    self.write(name, at, [[1 << 40, count]])
                    at += count
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EIO):
                    raise
        return at

    def extents(self, name, sync=True):
        """The map in blocks: [first, place, count, flags]."""
        mapped = kernel.extents(self.files[name], sync)
        return [[at // BLOCK_BYTES, place // BLOCK_BYTES, length // BLOCK_BYTES, flags] for at, place, length, flags in mapped]

    # Handles.

    def handle(self, name):
        kind, raw = kernel.handle(self.files[name])
        return [kind, raw.hex()]

    def open_by_handle(self, name, folder, kind, raw):
        mount = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.files[name] = kernel.open_by_handle(mount, kind, bytes.fromhex(raw))
        finally:
            os.close(mount)

    # Locks and leases.

    def flock(self, name, wait=False, shared=False):
        started = time.monotonic()
        fcntl.flock(self.files[name], (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        return time.monotonic() - started

    def unlock(self, name):
        fcntl.flock(self.files[name], fcntl.LOCK_UN)

    def lock_range(self, name, is_wanted=True, own_opening=False):
        kernel.lock_range(self.files[name], is_wanted, own_opening)

    def lease(self, name, kind):
        fcntl.fcntl(self.files[name], fcntl.F_SETLEASE, LEASES[kind])

    def leased(self, name):
        found = fcntl.fcntl(self.files[name], fcntl.F_GETLEASE)
        return {code: kind for kind, code in LEASES.items()}[found]

    def breaks_seen(self):
        return self.breaks

    # Work that goes on until the host dies.

    def share_on(self, progress, folder, files, blocks, count, churn):
        """Shares each file's runs with one source and then with another of the same content, again and again.

        The number of calls that have returned is kept in a file that outlives the host. With `churn`, another file is
        written and synced all the time, as machines do.
        """
        note = os.open(progress, os.O_WRONLY | os.O_CREAT, 0o644)
        sources = [os.open(f"{folder}/source{number}", os.O_RDONLY) for number in range(2)]
        targets = [os.open(f"{folder}/target{number}", os.O_RDWR) for number in range(files)]
        if churn:
            threading.Thread(target=churn_on, args=(f"{folder}/churn",), daemon=True).start()
        calls, length = 0, count * BLOCK_BYTES
        while True:
            for source in sources:
                for target in targets:
                    for at in range(0, blocks * BLOCK_BYTES, length):
                        kernel.share(source, at, target, at, length)
                        calls += 1
                        if calls % 16 == 0:
                            os.pwrite(note, b"%012d\n" % calls, 0)


def name_of(number):
    """The error's usual name, of those that one number has."""
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, str(number))


def churn_on(path):
    """Writes a block and syncs it, for ever."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    number = 1
    while True:
        os.pwrite(file, render([number]), number % 64 * BLOCK_BYTES)
        os.fsync(file)
        number += 1


def main():
    hand = Hand()
    for line in sys.stdin:
        call, arguments, named = json.loads(line)
        try:
            answer = {"result": getattr(hand, call)(*arguments, **named)}
        except OSError as error:
            answer = {"error": name_of(error.errno), "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
