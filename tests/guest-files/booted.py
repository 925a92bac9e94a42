"""A whole guest updates itself in QEMU while its files are shared with another one's.

The guest is a copy of a Debian image with a service that installs and removes packages, again and again, before anybody
can log in. Once it is down, its file system is sound and its packages' files are what their database says.
"""

import json
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from host import Failed, call, expect_no_panic, ignored, run, started

BOOT = Path(__file__).resolve().parents[2] / "scripts" / "boot-image.sh"
BOOT_S = 900
# How long the script may take to end what it has started.
END_S = 30
UPDATES = 2
BETWEEN_PASSES_S = 2
# How much of what a guest said is shown where it fails.
SAID_MAX = 20_000
SERVICE = """\
[Unit]
Description=Updates packages again and again
After=local-fs.target
Before=onefold-guest-up.service getty@tty1.service serial-getty@ttyS0.service
[Service]
Type=oneshot
ExecStart=/bin/sh /srv/updates
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
"""
SCRIPT = """\
set -e
for round in $(seq {updates}); do
    for version in $(seq {versions}); do
        dpkg --install /srv/archives/*_$version.deb
        dpkg --purge extra-0
    done
done
sync
touch /srv/updated
sync
"""


def root_partition(image):
    """Where the largest partition of an image begins and how long it is, in bytes."""
    table = json.loads(call("sfdisk", "--json", image))["partitiontable"]
    sector = table.get("sectorsize", 512)
    largest = max(table["partitions"], key=lambda partition: partition["size"])
    return largest["start"] * sector, largest["size"] * sector


@contextmanager
def partition(image):
    """Has the root file system of an image on a loop device meanwhile."""
    start, length = root_partition(image)
    device = call("losetup", "--find", "--show", "--offset", start, "--sizelimit", length, image).strip()
    try:
        yield device
    finally:
        ignored("losetup", "--detach", device)


def prepare(image, archives, versions, mountpoint):
    """Puts packages into a guest, and what installs them when it boots."""
    mountpoint.mkdir()
    with partition(image) as device:
        call("mount", device, mountpoint)
        try:
            (mountpoint / "srv/archives").mkdir(parents=True)
            for archive in archives.values():
                shutil.copy(archive, mountpoint / "srv/archives")
            script = SCRIPT.format(updates=UPDATES, versions=versions)
            (mountpoint / "srv/updates").write_text(script, encoding="ascii")
            (mountpoint / "etc/systemd/system/updates.service").write_text(SERVICE, encoding="ascii")
            wanted = mountpoint / "etc/systemd/system/multi-user.target.wants"
            wanted.mkdir(exist_ok=True)
            (wanted / "updates.service").symlink_to("../updates.service")
        finally:
            call("umount", mountpoint)


def expect_updated(image, mountpoint, said):
    """The guest has ended its updates, is sound, and has the files of its packages. Returns how many it has."""
    with partition(image) as device:
        # It was shut down: there is no journal to replay.
        call("e2fsck", "-fn", device)
        call("mount", "-o", "ro,noload", device, mountpoint)
        try:
            if not (mountpoint / "srv/updated").exists():
                raise Failed(f"the guest in QEMU has not ended its updates: {said}")
            call("debsums", "--silent", "--all", f"--root={mountpoint}", "--admindir=/var/lib/dpkg")
            return len(list((mountpoint / "var/lib/dpkg/info").glob("*.md5sums")))
        finally:
            call("umount", mountpoint)


def share_beside(host, qemu):
    """Shares again and again until the guest is down; returns how often."""
    passes = 0
    while qemu.poll() is None:
        verb = [["files"], ["run", "--files"]][passes % 2]
        done = run(host.words(*verb, "--quiet", host.images), timeout=BOOT_S)
        expect_no_panic(done.stdout + done.stderr, "beside QEMU")
        if done.returncode not in (0, 1):
            raise Failed(f"beside QEMU, {verb} ended with {done.returncode}: {done.stderr}")
        passes += 1
        # The guest is emulated, and gets on only while no pass is at work.
        time.sleep(BETWEEN_PASSES_S)
    return passes


def end(qemu):
    """Has the script end QEMU and take away what it has mounted, if it is still there."""
    qemu.terminate()
    try:
        qemu.wait(END_S)
    except subprocess.TimeoutExpired:
        # `started` kills it.
        pass


def booted(host, image, archives, versions, counts, folder):
    """Boots a guest beside a copy of itself, and shares until it is down again."""
    host.fill([])
    for name in ("booted.raw", "asleep.raw"):
        call("cp", "--sparse=always", image, host.images / name)
    guest, mountpoint = host.images / "booted.raw", folder / "booted"
    prepare(guest, archives, versions, mountpoint)
    host.remember("asleep.raw")
    words = [BOOT, "--timeout", str(BOOT_S), "--log", str(folder / "console"), str(guest)]
    with open(folder / "boot.log", "wb") as log, started(words, stdout=log, stderr=log) as qemu:
        try:
            passes = share_beside(host, qemu)
        finally:
            end(qemu)
    logs = [folder / name for name in ("boot.log", "console")]
    said = "".join(log.read_text(encoding="utf-8", errors="replace")[-SAID_MAX:] for log in logs if log.exists())
    if qemu.returncode != 0:
        raise Failed(f"the guest does not boot: {said}")
    counts["passes beside guests"] += passes
    counts["packages checked after a boot"] += expect_updated(guest, mountpoint, said)
    host.expect_whole("beside QEMU")
    mountpoint.rmdir()
    counts["boots"] += 1
