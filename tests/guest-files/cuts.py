"""Each verb that writes is killed at any moment, meets failing calls of the kernel, and runs out of room.

Afterwards each image holds what it held, and the next run comes to the result of a run that nobody cut.
"""

import collections
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

from host import Failed, call, expect_no_panic, run, started

# Calls that a run makes, and what the kernel may answer each of them.
FAULTS = {
    "pread64": "EIO",
    "pwrite64": "EIO ENOSPC EDQUOT",
    "write": "EIO ENOSPC",
    "ioctl": "EIO ENOSPC EOPNOTSUPP",
    "fsync": "EIO",
    "fdatasync": "EIO",
    "syncfs": "EIO",
    "renameat2": "EIO ENOSPC",
    "rename": "EIO ENOSPC",
    "renameat": "EIO ENOSPC",
    "linkat": "EIO ENOSPC",
    "unlinkat": "EIO",
    "fallocate": "ENOSPC EIO",
    "ftruncate": "EIO ENOSPC",
    "openat": "EMFILE EIO",
    "getdents64": "EIO",
    "statx": "EIO",
    "mkdirat": "ENOSPC",
    "fsetxattr": "ENOSPC",
}
INJECTED = re.compile(r"\(INJECTED\)")
CALL = re.compile(r"\d+ +(\w+)\(")
# How much room is left on a full file system, and by how much it may miss that.
ROOMS = [0, 1 << 16, 1 << 20, 6 << 20]
ROOM_MISSED_MAX = 1 << 20
# The shortest file that fills it, and the most of them.
FILLER_BYTES_MIN = 1 << 16
FILLERS_MAX = 100


@dataclass(frozen=True)
class Verb:
    """A verb that writes: its arguments, what comes before and after it, and whether it works on a common volume."""

    name: str
    arguments: tuple
    before: tuple = ()
    after: tuple = ()
    has_volume: bool = False


CREATE = ("common", "create", "VOLUME", "--size", "64M")
ADD = ("common", "add", "IMAGES", "--from", "IMAGES/1.raw", "--package", "tool-3", "--package", "tool-4")
VERBS = [
    Verb("files", ("files", "IMAGES")),
    Verb("run --files", ("run", "--files", "IMAGES")),
    Verb("files --common", ("files", "--common", "IMAGES"), (CREATE,), has_volume=True),
    # The next change of a volume removes what unfinished ones have left.
    Verb("common create", CREATE, after=(ADD,), has_volume=True),
    Verb("common add", ADD, (CREATE,), has_volume=True),
    Verb("common rm", ("common", "rm", "IMAGES", "tool-3"), (CREATE, ADD), (ADD,), has_volume=True),
]


@dataclass(frozen=True)
class Learnt:
    """What a verb comes to that nobody cuts, the seconds that it takes, and its calls of the kernel by kind."""

    result: tuple
    seconds: float
    calls: collections.Counter


def placed(host, arguments):
    """Puts the host's paths into arguments of a verb."""
    return [word.replace("VOLUME", str(host.volume)).replace("IMAGES", str(host.images)) for word in arguments]


def result_of(host, verb):
    """What a verb has come to: blocks that the images take, and what lies in the volume."""
    for later in verb.after:
        call(*host.words(*placed(host, later), "--quiet"))
    contents = host.share("common", "ls", host.images) if verb.has_volume else None
    return host.blocks(), contents


def prepare(host, made, verb):
    host.fill(made)
    for earlier in verb.before:
        call(*host.words(*placed(host, earlier), "--quiet"))


def quiet_words(host, verb):
    return host.words(*placed(host, verb.arguments), "--quiet")


class Cuts:
    """Verbs on one file system, with what each comes to if nobody cuts it."""

    def __init__(self, host, made, dice, counts, folder):
        self.host, self.made, self.dice, self.counts = host, made, dice, counts
        self.trace = folder / "trace"
        self.learnt = {}

    def learn(self, verb):
        """Returns what is known of a verb."""
        if verb not in self.learnt:
            prepare(self.host, self.made, verb)
            began = time.monotonic()
            call(*quiet_words(self.host, verb))
            seconds = time.monotonic() - began
            result = result_of(self.host, verb)
            prepare(self.host, self.made, verb)
            call(*self.traced(",".join(FAULTS)), *quiet_words(self.host, verb))
            with open(self.trace, encoding="utf-8", errors="replace") as trace:
                calls = collections.Counter(found[1] for found in map(CALL.match, trace) if found)
            self.learnt[verb] = Learnt(result, seconds, calls)
        return self.learnt[verb]

    def round(self, verb, cut):
        """Cuts a verb a few times, in a row, and lets it come to its end."""
        learnt = self.learn(verb)
        prepare(self.host, self.made, verb)
        for _ in range(self.dice.randint(1, 3)):
            what = cut(verb, learnt)
            self.host.expect_whole(what)
            if verb.has_volume and self.host.volume.exists():
                call(*self.host.words("common", "check", self.host.volume))
        self.finish(verb, what)
        found = result_of(self.host, verb)
        self.counts["whole runs"] += 1
        self.host.expect_whole(f"the run after {what}")
        if verb.has_volume:
            self.host.expect_sound_volume(f"the run after {what}")
        if found != learnt.result:
            raise Failed(f"{what}, then a whole run: {found}, and without the first: {learnt.result}")

    def finish(self, verb, what):
        """Runs the verb to its end. One that makes or removes something may have done so before it was cut."""
        done = run(quiet_words(self.host, verb))
        said = done.stdout + done.stderr
        expect_no_panic(said, f"the run after {what}")
        is_done_before = verb.name in ("common create", "common rm") and re.search("exists|no content of these", said)
        if done.returncode != 0 and not is_done_before:
            raise Failed(f"{what}, then a whole run ended with {done.returncode}: {said}")

    def kill(self, verb, learnt):
        """Kills a verb at any moment."""
        pause = self.dice.uniform(0, learnt.seconds * 1.1)
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with started(quiet_words(self.host, verb), **nowhere) as process:
            time.sleep(pause)
            is_cut = process.poll() is None
        if is_cut:
            self.counts["kills"] += 1
        return f"`{verb.name}` killed after {pause:.3f} s"

    def fault(self, verb, learnt):
        """Has calls of a verb fail: one, all from one on, or some of these."""
        name, number = self.drawn_call(learnt)
        answer = self.dice.choice(FAULTS[name].split())
        return self.injected(verb, name, f"error={answer}", f"{number}{self.dice.choice(['', '+', '+7'])}")

    def kill_at_call(self, verb, learnt):
        """Kills a verb at a call, before the kernel does it."""
        name, number = self.drawn_call(learnt)
        return self.injected(verb, name, "signal=KILL", number)

    def drawn_call(self, learnt):
        """Draws a kind of call that a verb makes, and the number of one: mostly low, as each thread counts its own."""
        name = self.dice.choice(sorted(learnt.calls))
        return name, int(learnt.calls[name] ** self.dice.random())

    def traced(self, names):
        """The beginning of a command line whose calls of these names are written down, one a line."""
        return ["strace", "-f", "-qq", "-o", str(self.trace), "-e", f"trace={names}"]

    def injected(self, verb, name, action, when):
        what = f"`{verb.name}` with {name}:{action}:when={when}"
        words = [*self.traced(name), "-e", f"inject={name}:{action}:when={when}", *quiet_words(self.host, verb)]
        # A `strace` that is killed leaves its program alone: it goes with its group.
        done = run(words)
        said = done.stdout + done.stderr
        expect_no_panic(said, what)
        if done.returncode < 0 and done.returncode != -signal.SIGKILL:
            raise Failed(f"{what}: it ended by signal {-done.returncode}: {said}")
        if action == "signal=KILL":
            self.counts["kills"] += int(done.returncode == -signal.SIGKILL)
        else:
            with open(self.trace, encoding="utf-8", errors="replace") as trace:
                self.counts["faults"] += sum(len(INJECTED.findall(line)) for line in trace)
        return what

    def full(self, verb, _):
        """Runs a verb on a file system with hardly any room, which counts if it is about the room that was drawn."""
        room = self.dice.choice(ROOMS)
        what = f"`{verb.name}` with {room >> 10} KiB left"
        try:
            left = fill_up(self.host, room)
            done = run(quiet_words(self.host, verb))
            expect_no_panic(done.stdout + done.stderr, what)
            self.host.expect_whole(what)
            self.counts["full"] += int(abs(left - room) <= ROOM_MISSED_MAX)
        finally:
            for filler in self.host.mount.glob("filler-*"):
                filler.unlink()
            self.host.sync()
        return what


def fill_up(host, room):
    """Fills a file system until about so much room is left. Returns how much is."""
    for number in range(FILLERS_MAX):
        filler, length = host.mount / f"filler-{number}", free_bytes(host) - room
        # It may have less in one piece, or keep some for itself.
        while length >= FILLER_BYTES_MIN and run(["fallocate", "-l", length, filler]).returncode != 0:
            filler.unlink(missing_ok=True)
            length //= 2
        if length < FILLER_BYTES_MIN:
            break
    if room == 0:
        # Whatever is left, in small pieces.
        run(["dd", "if=/dev/zero", f"of={host.mount / 'filler-last'}", "bs=4K"])
    return free_bytes(host)


def free_bytes(host):
    host.sync()
    return shutil.disk_usage(host.mount).free
