"""What the kernel keeps in memory of files, and how it forgets it: by files, so that all other memory stays in use."""

import os


def forget(path):
    """Writes a file or block device back and drops all that the kernel has cached of it."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def forget_all(folder):
    """Does so with every regular file below a folder."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path) and not os.path.islink(path):
                forget(path)


def drop_names():
    """Drops names and inodes of all file systems, and no pages."""
    # What is to be written keeps its inode.
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("2\n")
