"""Two hosts, or two users, share the same guests at the same time."""

import os
import subprocess
import time
from contextlib import ExitStack

from host import RUN_S, USER, Failed, blocks_of, call, expect_no_panic, started

# A process with the identity of another host: it sees another machine-id and has another name.
AS_OTHER_HOST = 'mount --bind "$1" /etc/machine-id && hostname "$2" && shift 2 && exec "$@"'


def as_host(folder, number, words):
    """The command line of a program on a host with a number of its own."""
    identity = folder / f"machine-id-{number}"
    identity.write_text(f"{number:032x}\n", encoding="ascii")
    return ["unshare", "--mount", "--uts", "bash", "-c", AS_OTHER_HOST, "host", str(identity), f"host-{number}", *words]


def as_user(words):
    return ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", *words]


def at_once(commands, when):
    """Runs commands at the same time, and returns their exit codes and what they said."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    results = []
    with ExitStack() as stack:
        for process in [stack.enter_context(started(words, **pipes)) for words in commands]:
            try:
                said, _ = process.communicate(timeout=RUN_S)
            except subprocess.TimeoutExpired:
                raise Failed(f"{when}: a program did not end within {RUN_S} s") from None
            expect_no_panic(said, when)
            results.append((process.returncode, said))
    return results


def blocks_of_one_host(host):
    """Has one host share all that is left; returns how many blocks the images take then, and once it has looked at
    everything again.

    A run repeats what an earlier one has concluded as long as no image changes, and sharing changes no image. So what a
    host has concluded while another one was at work may be out of date.
    """
    for _ in range(2):
        host.share("run", "--files", host.images)
    first = host.blocks()
    host.share("files", "--full", host.images)
    return first, host.blocks()


def two_hosts(host, made, dice, counts, folder):
    """Two hosts share at once. Each may leave files to the other; afterwards a host alone shares what is left.

    The images take as many blocks then as where one host has shared them.
    """
    host.fill(made)
    _, expected = blocks_of_one_host(host)
    host.fill(made)
    verbs = [["files"], ["run", "--files"], ["run"]]
    for _ in range(dice.randint(2, 4)):
        chosen = [dice.choice(verbs) for _ in range(2)]
        commands = [
            as_host(folder, number, host.words(*verb, "--quiet", host.images)) for number, verb in enumerate(chosen, 1)
        ]
        what = f"two hosts with {chosen}"
        for code, said in at_once(commands, what):
            # 1: something was left to the other one.
            if code not in (0, 1):
                raise Failed(f"{what}: ended with {code}: {said}")
        host.expect_whole(what)
        counts["passes of two hosts"] += 2
    first, found = blocks_of_one_host(host)
    host.expect_whole("two hosts, and then one")
    if found != expected:
        raise Failed(f"two hosts, and then one: the images take {found} blocks, and with one host {expected}")
    counts["blocks left to --full"] += first - found


def two_users(host, made, dice, counts):
    """Root and a user share at once. The user's guests share among themselves only, and no guest changes."""
    host.fill(made)
    os.chmod(host.mount, 0o1777)
    own = host.mount / "own"
    call("rm", "-rf", own)
    own.mkdir()
    theirs = {}
    for path, expected in list(host.sums.items())[:2]:
        copy = own / path.name
        call("cp", "--sparse=always", "--reflink=never", path, copy)
        theirs[copy] = expected
    call("chown", "-R", f"{USER}:{USER}", own)
    host.sync()
    host.sums.update(theirs)
    for _ in range(dice.randint(2, 4)):
        commands = [
            host.words(*dice.choice([["files"], ["run", "--files"]]), "--quiet", host.mount),
            as_user(host.words("files", "--quiet", own)),
        ]
        for code, said in at_once(commands, "two users"):
            if code not in (0, 1):
                raise Failed(f"two users: ended with {code}: {said}")
        host.expect_whole("two users at once")
        counts["passes of two users"] += 2
        time.sleep(dice.uniform(0, 0.05))
    expect_apart(host, own)
    for path in theirs:
        del host.sums[path]
    call("rm", "-rf", own)


def expect_apart(host, own):
    """No block belongs to files of two users."""
    host.sync()
    places = [blocks_of(folder.glob("*.raw")) for folder in (host.images, own)]
    if not all(places):
        raise Failed("the images of one of two users take no blocks")
    both = places[0] & places[1]
    if both:
        raise Failed(f"{len(both)} blocks belong to files of two users")
