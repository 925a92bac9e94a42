"""Locks between hosts."""

import time

from cluster import SHARED

from .trial import answer, fact

# (12 s without heartbeats, then recovery; emulated, on a busy machine.)
DEATH_S = 150


@fact("flock is the cluster's: another host is kept out, and let in when it is released")
def flock_across(trial):
    first, second = trial.first, trial.second
    first.open("lock", trial.path("lock"))
    second.open("lock", trial.path("lock"))
    first.flock("lock")
    refused = answer(second.flock, "lock")
    second.start("flock", "lock", wait=True)
    waits = not second.is_done(2)
    first.unlock("lock")
    released = time.monotonic()
    second.finish()
    woke = time.monotonic() - released
    back = answer(first.flock, "lock")
    second.unlock("lock")
    shared = answer(first.flock, "lock", shared=True), answer(second.flock, "lock", shared=True)
    seen = f"refused with {refused}, a waiter waits: {waits}, and has it {woke:.2f} s after the release; the first one is then "
    seen += f"refused with {back}; shared locks of both: {all(isinstance(one, float) for one in shared)}"
    return seen, (refused, waits, back) == ("EAGAIN", True, "EAGAIN")


@fact("locks of fcntl are not the cluster's: both hosts get them, those of processes and those of openings")
def fcntl_locks(trial):
    got = {}
    for kind, own_opening in (("process", False), ("opening", True)):
        for hand in (trial.first, trial.second):
            hand.open(kind, trial.path(kind))
            got.setdefault(kind, []).append(answer(hand.lock_range, kind, own_opening=own_opening) or "got it")
    told = "; ".join(f"of a {kind}: {first}, {second}" for kind, (first, second) in got.items())
    return f"first host and second host: {told}", got["opening"] == ["got it"] * 2


@fact("when a host loses power, its flock goes to the host that waits for it, once the cluster has noticed")
def flock_of_the_dead(trial):
    first, second = trial.first, trial.second
    for hand in (first, second):
        hand.open("lock", trial.path("lock"))
    second.flock("lock")
    first.start("flock", "lock", wait=True)
    if first.is_done(2):
        return "it did not wait", False
    killed = time.monotonic()
    trial.cluster.host(2).kill()
    first.finish(DEATH_S)
    took = time.monotonic() - killed
    trial.cluster.host(2).restart()
    return f"{took:.1f} s after the kill", True


@fact("a host that mounts with localflocks gets an flock that another host holds, and its mount options name localflocks")
def local_flocks(trial):
    host = trial.cluster.host(2)
    trial.first.open("lock", trial.path("lock"))
    trial.first.flock("lock")
    host.unmount()
    host.mount("localflocks")
    try:
        hand = host.hand()
        hand.open("lock", trial.path("lock"))
        got = answer(hand.flock, "lock")
        hand.end()
        options = host.run(f"findmnt -n -o OPTIONS {SHARED}").strip()
    finally:
        host.unmount()
        host.mount()
    seen = f"the second host: {'got it' if isinstance(got, float) else got}; options: {options}"
    return seen, isinstance(got, float) and "localflocks" in options.split(",")
