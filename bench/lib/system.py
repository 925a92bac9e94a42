"""Other programs, the kernel's counters and caches."""

import os
import resource
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# In which the kernel counts, whatever a disk calls a sector.
SECTOR_BYTES = 512
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

# No single step of a benchmark takes longer, unless something hangs.
COMMAND_SECONDS_MAX = 300
# How long a killed process may take to go.
KILL_SECONDS_MAX = 20


class BenchError(Exception):
    """A step that failed: the message says which, and why."""


class NothingToRecover(BenchError):
    """A crash left nothing that a mount has to do."""


@dataclass
class Finished:
    """What a program printed and what it took."""

    text: str
    seconds: float
    cpu_seconds: float


def run(*command, timeout=COMMAND_SECONDS_MAX, group=None, user=None, text=None):
    """Runs a program to its end, in a control group and as a user if these are given, with a text as standard input.

    Raises BenchError, with the program's own words, where it fails, is missing or does not end.
    """
    command = [os.fspath(part) for part in command]
    cpu, started = children_cpu_seconds(), time.perf_counter()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL if text is None else subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, preexec_fn=before_program(group, user),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise BenchError(f"cannot run {command[0]}: {getattr(error, 'strerror', None) or error}") from error
    try:
        out, err = process.communicate(text, timeout=timeout)
    except BaseException as reason:
        end(process)
        if isinstance(reason, subprocess.TimeoutExpired):
            raise BenchError(f"`{' '.join(command)}` did not end within {timeout} s") from None
        raise
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        raise BenchError(f"`{' '.join(command)}` failed with {process.returncode}: {(err or out).strip()}")
    return Finished(out, seconds, children_cpu_seconds() - cpu)


def before_program(group=None, user=None):
    """Returns what a child has to do before it becomes a program of a control group and a user, None where nothing."""
    # The group first: a user may not join it.
    steps = [step for step in (group and group.join, user and user.become) if step]
    return (lambda: [step() for step in steps]) if steps else None


@contextmanager
def in_background(*command, group=None, user=None):
    """Runs a program beside what goes on inside, and kills it afterwards."""
    command = [os.fspath(part) for part in command]
    null = subprocess.DEVNULL
    before = before_program(group, user)
    process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, preexec_fn=before)
    try:
        yield process
    finally:
        end(process)


def end(process):
    """Kills a program. One that waits for a dead mount goes only when that mount goes, so the wait has an end."""
    process.kill()
    try:
        process.wait(KILL_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        pass


def children_cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def process_cpu_seconds(pid):
    """Returns user and system time of a process with all its threads, those that have ended too."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        # The name, in parentheses, may hold anything; what follows it are numbers.
        fields = file.read().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / TICKS_PER_SECOND


def machine_cpu_seconds():
    """Returns the time that all processors together were busy, the kernel's own threads included."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND


def page_faults():
    """Returns how many page faults all processes together ever had."""
    with open("/proc/vmstat", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("pgfault "))


def steal_seconds():
    """Returns the time that all processors together had to wait for the host, which worked for others."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[8]) / TICKS_PER_SECOND


def memory_status(pid):
    """Returns the lines of /proc/PID/status that end in kB, in bytes: VmRSS, VmHWM, RssAnon and so on."""
    found = {}
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if value.rstrip().endswith(" kB"):
                found[name] = int(value.split()[0]) * 1024
    return found


def read_by(pid):
    """Returns how much the calls of a process have read, from disks or from memory."""
    return io_counter(pid, "rchar")


def process_read_bytes(pid):
    """Returns how much a process has had read from disks for it."""
    return io_counter(pid, "read_bytes")


def io_counter(pid, name):
    """Returns what the kernel counts of a process. Raises BenchError where it does not tell."""
    for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines():
        key, _, value = line.partition(": ")
        if key == name:
            return int(value)
    raise BenchError(f"process {pid} does not tell its {name}")


def disk_read_bytes(disk):
    """Returns how much was ever read from a block device such as /dev/loop0."""
    return read_sectors(Path("/sys/block") / os.path.basename(disk)) * SECTOR_BYTES


def read_sectors(kernels_folder):
    return int((kernels_folder / "stat").read_text(encoding="ascii").split()[2])


def file_system_type(folder):
    """Returns what a folder lies on, as `mount` names it."""
    return run("findmnt", "--noheadings", "--output", "FSTYPE", "--target", folder).text.strip()


def block_device_below(folder):
    """Returns the kernel's folder of the block device that a folder lies on; its name is the device's."""
    number = os.stat(folder).st_dev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()


def read_bytes_below(folder):
    """Returns how much was ever read from the block device that a folder lies on."""
    return read_sectors(block_device_below(folder)) * SECTOR_BYTES


def stored_bytes(*paths):
    """Returns what files take of the disk, without their holes."""
    return sum(os.stat(path).st_blocks * 512 for path in paths)


def unmount(mountpoint):
    """Unmounts what is mounted there, if anything is; a file system that is in use goes when it no longer is."""
    if is_mounted(mountpoint):
        try:
            run("umount", mountpoint)
        except BenchError:
            run("umount", "--lazy", mountpoint)


def is_mounted(mountpoint):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        # Blanks in paths are escaped there; the paths of a benchmark have none (checked at the start).
        return any(line.split()[4] == os.fspath(mountpoint) for line in file)
