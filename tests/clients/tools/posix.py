#!/usr/bin/env python3
"""What POSIX and Linux say about files, asked of the directory that is given.

    posix.py DIRECTORY
"""

import ctypes
import errno
import os
import socket
import stat
import sys
import tempfile
import unittest

BLOCK = 4096
TIB = 1 << 40
FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """Calls a function of the C library that Python has no name for."""
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fallocate(fd, mode, offset, length):
    call("fallocate", fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length))


def renameat2(old, new, flags):
    at_cwd = -100
    call("renameat2", at_cwd, os.fsencode(old), at_cwd, os.fsencode(new), flags)


class Posix(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=TESTED)
        os.chdir(self.folder)

    def tearDown(self):
        os.chdir("/")

    def assertFails(self, number, function, *arguments, **named):
        with self.assertRaises(OSError) as raised:
            function(*arguments, **named)
        self.assertEqual(raised.exception.errno, number, raised.exception)

    def write(self, name, data=b"content"):
        with open(name, "wb") as file:
            file.write(data)

    def read(self, name):
        with open(name, "rb") as file:
            return file.read()

    def test_an_unlinked_file_lives_until_it_is_closed(self):
        fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o600)
        os.write(fd, b"before")
        os.unlink("file")
        os.pwrite(fd, b"after!", 100_000)
        self.assertEqual(os.pread(fd, 6, 100_000), b"after!")
        self.assertEqual((os.fstat(fd).st_nlink, os.listdir(".")), (0, []))
        os.close(fd)

    def test_rename_replaces_a_file_that_others_have_open(self):
        self.write("old", b"old")
        self.write("new", b"new")
        with open("old", "rb") as reader:
            os.rename("new", "old")
            self.assertEqual((reader.read(), self.read("old"), os.listdir(".")), (b"old", b"new", ["old"]))

    def test_rename_keeps_the_rules_about_directories(self):
        os.makedirs("full/below")
        os.mkdir("empty")
        os.mkdir("other")
        self.write("file")
        self.assertFails(errno.ENOTEMPTY, os.rename, "empty", "full")
        self.assertFails(errno.EINVAL, os.rename, "full", "full/below/itself")
        self.assertFails(errno.ENOTDIR, os.rename, "empty", "file")
        self.assertFails(errno.EISDIR, os.rename, "file", "empty")
        os.rename("full", "empty")
        self.assertEqual(sorted(os.listdir(".")), ["empty", "file", "other"])
        self.assertEqual((os.stat("empty").st_nlink, os.stat(".").st_nlink), (3, 4))

    def test_rename_can_refuse_to_replace_and_can_exchange(self):
        self.write("a", b"a")
        os.mkdir("b")
        self.assertFails(errno.EEXIST, renameat2, "a", "b", RENAME_NOREPLACE)
        renameat2("a", "b", RENAME_EXCHANGE)
        self.assertTrue(os.path.isdir("a"))
        self.assertEqual(self.read("b"), b"a")

    def test_hard_links_are_one_file(self):
        self.write("one")
        os.link("one", "two")
        self.write("two", b"changed")
        one, two = os.stat("one"), os.stat("two")
        self.assertEqual((one.st_ino, one.st_nlink, self.read("one")), (two.st_ino, 2, b"changed"))
        os.unlink("one")
        self.assertEqual((self.read("two"), os.stat("two").st_nlink), (b"changed", 1))
        os.mkdir("directory")
        self.assertFails(errno.EPERM, os.link, "directory", "linked")
        self.assertFails(errno.EEXIST, os.link, "two", "directory")

    def test_symbolic_links_keep_their_text(self):
        for name, target in [("short", "x"), ("long", "y/" * 2000), ("bytes", b"\xff\xfe")]:
            os.symlink(target, name)
            self.assertEqual(os.readlink(os.fsencode(name)), os.fsencode(target))
            self.assertEqual(os.lstat(name).st_size, len(target))
        os.symlink("loop", "loop")
        self.assertFails(errno.ELOOP, os.stat, "loop")

    def test_special_files_keep_kind_and_number(self):
        os.mkfifo("fifo")
        os.mknod("character", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod("block", stat.S_IFBLK | 0o600, os.makedev(4095, 1048575))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
            listener.listen()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect("socket")
        modes = {name: os.lstat(name).st_mode for name in os.listdir(".")}
        self.assertTrue(stat.S_ISFIFO(modes["fifo"]) and stat.S_ISSOCK(modes["socket"]))
        self.assertTrue(stat.S_ISCHR(modes["character"]) and stat.S_ISBLK(modes["block"]))
        self.assertEqual(os.stat("block").st_rdev, os.makedev(4095, 1048575))
        # Images come from anybody: a mount does not open devices.
        self.assertFails(errno.EACCES, os.open, "character", os.O_RDONLY)

    def test_attributes_are_kept_replaced_listed_and_removed(self):
        self.write("file")
        os.setxattr("file", "user.a", b"1")
        os.setxattr("file", "user.b", b"\0" * 3000)
        os.setxattr("file", "user.empty", b"")
        os.setxattr("file", "trusted.t", b"root's")
        self.assertFails(errno.EEXIST, os.setxattr, "file", "user.a", b"2", os.XATTR_CREATE)
        self.assertFails(errno.ENODATA, os.setxattr, "file", "user.c", b"2", os.XATTR_REPLACE)
        os.setxattr("file", "user.a", b"22", os.XATTR_REPLACE)
        os.removexattr("file", "user.b")
        self.assertEqual(sorted(os.listxattr("file")), ["trusted.t", "user.a", "user.empty"])
        self.assertEqual((os.getxattr("file", "user.a"), os.getxattr("file", "user.empty")), (b"22", b""))
        self.assertFails(errno.ENODATA, os.getxattr, "file", "user.b")

    def test_holes_and_data_are_found(self):
        with open("file", "w+b") as file:
            fd = file.fileno()
            os.pwrite(fd, b"x" * BLOCK, 1 << 20)
            os.pwrite(fd, b"x", 1 << 40)
            # Zeros that were written are a hole as well.
            os.pwrite(fd, bytes(1 << 20), 16 << 20)
            os.truncate(fd, 2 << 40)
            places = []
            offset = 0
            while True:
                try:
                    start = os.lseek(fd, offset, os.SEEK_DATA)
                except OSError as error:
                    self.assertEqual(error.errno, errno.ENXIO)
                    break
                offset = os.lseek(fd, start, os.SEEK_HOLE)
                places.append((start, offset))
            self.assertEqual(places, [(1 << 20, (1 << 20) + BLOCK), (1 << 40, (1 << 40) + BLOCK)])
            self.assertFails(errno.ENXIO, os.lseek, fd, 2 << 40, os.SEEK_HOLE)
            self.assertEqual(os.lseek(fd, (2 << 40) - 1, os.SEEK_HOLE), (2 << 40) - 1)

    def test_fallocate_allocates_punches_and_refuses_what_is_not_there(self):
        with open("file", "w+b") as file:
            fd = file.fileno()
            os.write(fd, b"z" * (4 * BLOCK))
            fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 2 * BLOCK)
            expected = b"z" * 100 + bytes(2 * BLOCK) + b"z" * (2 * BLOCK - 100)
            self.assertEqual(os.pread(fd, 5 * BLOCK, 0), expected)
            fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1 << 20)
            self.assertEqual(os.fstat(fd).st_size, 4 * BLOCK)
            fallocate(fd, 0, 0, 1 << 20)
            self.assertEqual(os.pread(fd, 1 << 20, 0), expected + bytes((1 << 20) - 4 * BLOCK))
            self.assertFails(errno.EOPNOTSUPP, fallocate, fd, 8, 0, BLOCK)  # Collapse range.
            self.assertFails(errno.EINVAL, fallocate, fd, 0, 0, 0)

    def test_more_than_the_pool_has_cannot_be_allocated(self):
        with open("file", "w+b") as file:
            self.assertFails(errno.ENOSPC, fallocate, file.fileno(), 0, 0, 8 * TIB)
        self.write("another")
        # What was reserved before space ran out goes with the file.
        os.unlink("file")

    def test_names_end_at_255_bytes_and_paths_are_any_bytes(self):
        for name in ("n" * 255, b"\xff\x01\n" * 85, "ü" * 127):
            self.write(name)
            os.stat(name)
        for function in (os.stat, os.mkdir, os.mkfifo, self.write):
            self.assertFails(errno.ENAMETOOLONG, function, "n" * 256)
        self.assertFails(errno.ENAMETOOLONG, os.symlink, "x", "n" * 256)
        self.assertEqual(len(os.listdir(".")), 3)

    def test_files_end_at_their_largest_size(self):
        with open("file", "w+b") as file:
            fd = file.fileno()
            self.assertFails(errno.EFBIG, os.pwrite, fd, b"x", 17 * TIB)
            self.assertFails(errno.EFBIG, os.truncate, fd, 17 * TIB)
            os.pwrite(fd, b"end", 8 * TIB - 3)
            self.assertEqual((os.fstat(fd).st_size, os.pread(fd, 10, 8 * TIB - 3)), (8 * TIB, b"end"))
            self.assertEqual(os.pread(fd, 4, 5 << 32), bytes(4))

    def test_times_have_nanoseconds_and_reach_far(self):
        self.write("file")
        for seconds in (0, -1_000_000_000, 1 << 33, 981_173_045):
            nanoseconds = seconds * 10**9 + 123_456_789
            os.utime("file", ns=(nanoseconds + 1, nanoseconds))
            found = os.stat("file")
            self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (nanoseconds + 1, nanoseconds))

    def test_changes_move_the_times_that_they_should(self):
        self.write("file")
        os.utime("file", ns=(1, 1))
        before = os.stat("file")
        os.chmod("file", 0o640)
        after = os.stat("file")
        self.assertEqual(after.st_mtime_ns, 1)
        self.assertGreater(after.st_ctime_ns, before.st_ctime_ns)
        with open("file", "ab") as file:
            file.write(b"more")
        self.assertGreater(os.stat("file").st_mtime_ns, 1)
        os.utime(".", ns=(1, 1))
        os.rename("file", "renamed")
        self.assertGreater(os.stat(".").st_mtime_ns, 1)

    def test_a_write_by_another_user_drops_set_user_id(self):
        self.write("file")
        os.chmod("file", 0o6777)
        os.chmod(".", 0o777)
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setgid(4321)
            os.setuid(4321)
            with open("file", "ab") as file:
                file.write(b"x")
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(stat.S_IMODE(os.stat("file").st_mode), 0o777)

    def test_a_directory_is_read_while_it_changes(self):
        for number in range(3000):
            self.write(f"{number}", b"")
        seen = []
        with os.scandir(".") as entries:
            for entry in entries:
                seen.append(entry.name)
                os.unlink(entry.name)
        self.assertEqual(sorted(seen, key=int), [str(number) for number in range(3000)])
        self.assertEqual(os.listdir("."), [])

    def test_appends_of_two_writers_lose_nothing(self):
        one = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        two = os.open("file", os.O_WRONLY | os.O_APPEND)
        for number in range(500):
            os.write(one, b"1" * 7)
            os.write(two, b"2" * 11)
        os.close(one)
        os.close(two)
        self.assertEqual(self.read("file"), (b"1" * 7 + b"2" * 11) * 500)


if __name__ == "__main__":
    TESTED = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
