"""The packages that all machines get, as a folder of files and as a package database of their own."""

import shutil

from lib import system
from lib.system import BenchError

DATABASE = "var/lib/dpkg"
RELEASE = 'ID=debian\nPRETTY_NAME="Packages"\nVERSION_ID="12"\n'


def unpack(packages, tree, database):
    """Unpacks archives into a folder and makes the database of them; made-up packages have both already."""
    archives = sorted(packages.glob("*.deb"))
    if not archives:
        shutil.copytree(packages / "files", tree, symlinks=True, ignore=shutil.ignore_patterns("dpkg"))
        shutil.copytree(packages / "files" / DATABASE, database / DATABASE)
        write_release(database)
        return
    tree.mkdir()
    info = database / DATABASE / "info"
    info.mkdir(parents=True)
    status = []
    for archive in archives:
        system.run("dpkg-deb", "--extract", archive, tree)
        status.append(record(archive, info))
    (database / DATABASE / "status").write_text("\n".join(status), encoding="utf-8")
    write_release(database)


def write_release(database):
    """Has a database taken for that of a system."""
    (database / "etc").mkdir(exist_ok=True)
    (database / "etc/os-release").write_text(RELEASE, encoding="utf-8")


def record(archive, info):
    """Writes what dpkg records of the files of an archive; returns the package's part of the list of packages."""
    fields = system.run("dpkg-deb", "--field", archive).text
    values = dict(line.split(": ", 1) for line in fields.splitlines() if ": " in line and not line.startswith(" "))
    name = values["Package"]
    if values.get("Multi-Arch") == "same":
        name += f":{values['Architecture']}"
    listed = [line.split(maxsplit=5)[5] for line in contents(archive)]
    paths = [path.split(" -> ")[0].removeprefix(".").rstrip("/") or "/." for path in listed]
    (info / f"{name}.list").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    try:
        sums = system.run("dpkg-deb", "--info", archive, "md5sums").text
    except BenchError:
        # Packages of nothing but links have none.
        return f"{fields.strip()}\nStatus: install ok installed\n"
    (info / f"{name}.md5sums").write_text(sums, encoding="utf-8")
    return f"{fields.strip()}\nStatus: install ok installed\n"


def contents(archive):
    """Returns the verbose listing of an archive, a line for each file."""
    return system.run("dpkg-deb", "--contents", archive).text.splitlines()


def regular_files(tree):
    """Returns the regular files of a folder that are not empty."""
    return [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_size]
