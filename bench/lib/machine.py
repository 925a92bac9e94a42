"""What the figures were measured on."""

import os
import platform
import re
from pathlib import Path

from . import system

GIB = 1 << 30


def describe(repository, place, onefold):
    """Returns facts about the machine, the disk and the build, by name, in the order in which they are shown."""
    return {
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": disk(place.folder),
        "build": f"{system.run(onefold, '--version').text.strip()}, commit {commit(repository)}",
        "tools": f"{system.run('fio', '--version').text.strip()}, Python {platform.python_version()}",
        "clients": f"user {place.user.uid}" if place.user.uid else "root",
        "load at the start": f"{os.getloadavg()[0]:.2f}",
    }


def processor():
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def disk(folder):
    """Returns what lies below the two devices' files."""
    words = system.run("findmnt", "--noheadings", "--output", "FSTYPE,SOURCE", "--target", folder).text.split()
    return f"{words[0]} on {words[1]}" if len(words) == 2 else " ".join(words)


def commit(repository):
    """Returns the commit that is checked out, marked where the tree differs from it."""
    try:
        name = system.run("git", "-C", repository, "rev-parse", "--short=12", "HEAD").text.strip()
        changed = system.run("git", "-C", repository, "status", "--porcelain", "--untracked-files=no").text
    except system.BenchError:
        return "unknown"
    return f"{name} with changes" if changed.strip() else name
