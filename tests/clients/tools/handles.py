#!/usr/bin/env python3
"""File handles, as an NFS server keeps them: numbers that lead to files without any name.

    handles.py take DIRECTORY FILE    makes files, writes their handles to FILE, and opens each
    handles.py open DIRECTORY FILE    opens them again, after the file system was mounted anew
"""

import ctypes
import errno
import json
import os
import sys

HANDLE_BYTES_MAX = 128

libc = ctypes.CDLL(None, use_errno=True)


class FileHandle(ctypes.Structure):
    _fields_ = [
        ("handle_bytes", ctypes.c_uint),
        ("handle_type", ctypes.c_int),
        ("handle", ctypes.c_ubyte * HANDLE_BYTES_MAX),
    ]


def check(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def handle_of(path):
    handle, mount_id = FileHandle(handle_bytes=HANDLE_BYTES_MAX), ctypes.c_int()
    at_cwd = -100
    check(libc.name_to_handle_at(at_cwd, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount_id), 0))
    return [handle.handle_type, bytes(handle.handle[: handle.handle_bytes]).hex()]


def open_handle(mount, kept, flags):
    kind, number = kept
    raw = bytes.fromhex(number)
    handle = FileHandle(handle_bytes=len(raw), handle_type=kind)
    handle.handle[: len(raw)] = raw
    return check(libc.open_by_handle_at(mount, ctypes.byref(handle), flags))


def read(fd):
    with os.fdopen(fd, "rb") as file:
        return file.read()


def take(file):
    os.makedirs("handles/deep/deeper")
    for name in ("file", "deep/deeper/file", "removed"):
        with open(f"handles/{name}", "w") as made:
            made.write(name)
    os.symlink("file", "handles/link")
    names = ["file", "deep/deeper/file", "removed", "link", "deep/deeper", "."]
    handles = {name: handle_of(f"handles/{name}") for name in names}
    mount = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    assert read(open_handle(mount, handles["file"], os.O_RDONLY)) == b"file"
    with open(file, "w") as kept:
        json.dump(handles, kept)


def open_all(file):
    with open(file) as kept:
        handles = json.load(kept)
    mount = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    # A file first: the kernel knows nothing but its number, and asks for `.` in it.
    for name in ("deep/deeper/file", "file"):
        assert read(open_handle(mount, handles[name], os.O_RDONLY)) == name.encode()
    link = open_handle(mount, handles["link"], os.O_PATH)
    assert os.readlink("", dir_fd=link) == "file"
    # A directory: the kernel looks for its parents, so that `..` leads somewhere.
    deeper = open_handle(mount, handles["deep/deeper"], os.O_RDONLY | os.O_DIRECTORY)
    assert os.listdir(deeper) == ["file"]
    os.fchdir(deeper)
    assert os.path.realpath("../..").endswith("/handles"), os.path.realpath("../..")
    os.unlink("../../removed")
    try:
        open_handle(mount, handles["removed"], os.O_RDONLY)
    except OSError as error:
        assert error.errno == errno.ESTALE, error
    else:
        raise AssertionError("a removed file can be opened by its handle")
    print(f"note: {len(handles)} handles kept over a remount")


def main():
    verb, directory, file = sys.argv[1:]
    os.chdir(directory)
    {"take": take, "open": open_all}[verb](file)


if __name__ == "__main__":
    main()
