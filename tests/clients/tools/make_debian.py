#!/usr/bin/env python3
"""Makes the tree of a small system with a package database of dpkg: make_debian.py FOLDER NAME SEED [--lie]

Packages and their files are the same for each tree; SEED makes files of the tree's own between them, so that an image made of
the tree has the packaged files at other places. With --lie the digests are those of other files.
"""
import hashlib, os, random, sys

folder, name, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
is_lying = "--lie" in sys.argv


def write(path, content):
    whole = os.path.join(folder, path)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    with open(whole, "wb") as file:
        file.write(content)


packaged, own = random.Random(1), random.Random(seed)
info, status = "var/lib/dpkg/info", []
write("etc/os-release", b"ID=debian\nVERSION_ID=12\n")
write("etc/hostname", name.encode() + b"\n")
for number in range(8):
    package = f"tool-{number}"
    paths, digests, contents = [], [], []
    for at in range(60):
        # Most packaged files are small.
        length = packaged.choice([300, 1500, 4096, 5000, 9000, 70000])
        path = f"usr/{'bin' if at % 2 else 'share/doc'}/{package}-{at}"
        content = packaged.randbytes(length)
        write(path, content)
        paths.append(path)
        contents.append(content)
        if at % 7 == seed % 7:
            write(f"var/own/{package}-{at}", own.randbytes(own.choice([2000, 6000, 30000])))
    for at, path in enumerate(paths):
        content = contents[at - 1] if is_lying else contents[at]
        digests.append(f"{hashlib.md5(content).hexdigest()}  {path}\n")
    write(f"{info}/{package}.list", "".join(f"/{path}\n" for path in paths).encode())
    write(f"{info}/{package}.md5sums", "".join(digests).encode())
    status.append(f"Package: {package}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.{number}\n\n")
write("var/lib/dpkg/status", "".join(status).encode())
# Files of no package: one of a fixed time, one that is as old as the tree, and one whose content is the tree's own.
write("srv/dated", random.Random(3).randbytes(50 * 4096))
os.utime(os.path.join(folder, "srv/dated"), (1700000000, 1700000000))
write("srv/named", random.Random(4).randbytes(40 * 4096))
os.utime(os.path.join(folder, "srv/named"), (1700000000 + seed, 1700000000 + seed))
write("srv/log", own.randbytes(40 * 4096))
# A packaged file that this system has changed: one block of a hundred.
changed = bytearray(random.Random(2).randbytes(100 * 4096))
digest = hashlib.md5(changed).hexdigest()
changed[50 * 4096 + 7] = seed % 256
write("usr/lib/big", changed)
write(f"{info}/big.list", b"/usr/lib/big\n")
write(f"{info}/big.md5sums", f"{digest}  usr/lib/big\n".encode())
with open(os.path.join(folder, "var/lib/dpkg/status"), "a", encoding="ascii") as file:
    file.write("Package: big\nStatus: install ok installed\nArchitecture: all\nVersion: 3\n\n")
