"""Images that are made up, or made of what is there."""

import hashlib
import shutil

from lib import system
from lib.data import CHUNK_BYTES, UniqueData

# Files of a made-up package, and of a directory of the image with very many.
FILES_OF_PACKAGE = 50
FILES_OF_DIRECTORY = 1000
# What an empty file system needs, by kind.
MKFS = {"xfs": ("mkfs.xfs", "-q", "-f"), "ntfs": ("mkntfs", "--quiet", "--fast", "--force")}
# Folders that make up a tree, and what NTFS has no place for.
TREE = ("boot", "etc", "opt", "srv", "usr", "var")
RELEASE = 'ID=debian\nPRETTY_NAME="A made-up system"\nVERSION_ID="12"\n'


def image(path, tree, settings):
    """Makes an ext4 of a system with packages."""
    shutil.rmtree(tree, ignore_errors=True)
    for folder in (*TREE, "var/lib/dpkg/info", "usr/share", "usr/bin"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "etc/os-release").write_text(RELEASE, encoding="utf-8")
    (tree / "etc/fstab").write_text("/dev/vda1 / ext4 defaults 0 1\n", encoding="utf-8")
    (tree / "etc/debian_version").write_text("12.0\n", encoding="utf-8")
    # One has the name that a row asks for.
    names = ["libssl3", *(f"package-{number}" for number in range(1, settings.made_packages))]
    status = [package(tree, name) for name in names]
    (tree / "var/lib/dpkg/status").write_text("\n".join(status), encoding="utf-8")
    ext4(path, tree, settings.made_bytes)
    shutil.rmtree(tree)


def package(tree, name):
    """Makes the files of a package and what is recorded of them; returns its part of the list of packages."""
    folder = tree / "usr/share" / name
    folder.mkdir()
    paths, sums = [f"/usr/share/{name}"], []
    for number in range(FILES_OF_PACKAGE):
        content = f"{name} {number}\n".encode() * (1 + 37 * number)
        (folder / f"file-{number}").write_bytes(content)
        paths.append(f"/usr/share/{name}/file-{number}")
        sums.append(f"{hashlib.md5(content, usedforsecurity=False).hexdigest()}  usr/share/{name}/file-{number}\n")
    info = tree / "var/lib/dpkg/info"
    (info / f"{name}.list").write_text("".join(f"{path}\n" for path in ("/.", *paths)), encoding="utf-8")
    (info / f"{name}.md5sums").write_text("".join(sums), encoding="utf-8")
    return f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.0-1\n"


def ext4(path, tree, length):
    """Makes an ext4 with the files of a folder."""
    system.run("mke2fs", "-q", "-F", "-t", "ext4", "-d", tree, path, f"{length >> 10}k")


def empty(path, kind, length):
    """Makes an empty file system in a sparse file."""
    with open(path, "wb") as file:
        file.truncate(length)
    system.run(*MKFS[kind], path)


def large(path, tree, length):
    """Makes an ext4 with one file, `/large`."""
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    data = UniqueData(1)
    with open(tree / "large", "wb") as file:
        for index in range(length // CHUNK_BYTES):
            file.write(data.chunk(index))
    ext4(path, tree, length + length // 8 + (64 << 20))
    shutil.rmtree(tree)


def many_files(tree, count):
    """Makes so many small files."""
    for number in range(count):
        folder = tree / f"{number // FILES_OF_DIRECTORY:03}"
        if number % FILES_OF_DIRECTORY == 0:
            folder.mkdir(parents=True)
        (folder / f"{number % FILES_OF_DIRECTORY:04}").write_bytes(b"x" * (1 + number % 4096))


def copy_tree(source, target, kind):
    """Copies the files of a system."""
    folders = [source / name for name in TREE if (source / name).exists()]
    # NTFS has neither owners nor devices.
    keep = ("--recursive", "--no-dereference") if kind == "ntfs" else ("--archive",)
    system.run("cp", *keep, *folders, target)
