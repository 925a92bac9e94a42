"""How a fact is tried: its claim, its own folder, hands on the hosts."""

import time

from cluster import SHARED, Failed, Refused

SHARED_FLAG = 0x2000
FACTS = []


def fact(claim):
    """A function that tries the claim. Returns what was seen, and whether the claim holds."""

    def register(function):
        FACTS.append((function.__name__.replace("_", "-"), claim, function))
        return function

    return register


def answer(call, *arguments, **named):
    """What a call says: its result, or the name of its error."""
    try:
        return call(*arguments, **named)
    except Refused as refused:
        return refused.name


class Trial:
    """One fact's own folder, and hands on the hosts."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.folder = f"{SHARED}/{name}"
        self.hands = {}
        for tries_left in (2, 1, 0):
            try:
                self.first.mkdir(self.folder)
                break
            except Failed:
                # On a busy machine a connection may not come about; nothing was tried yet.
                if tries_left == 0 or not cluster.host(1).is_running():
                    raise
                self.hands.clear()
                time.sleep(2)

    def hand(self, number):
        """The hand on a host. It is made when it is first asked for, and anew after a restart."""
        host = self.cluster.host(number)
        hand, boots = self.hands.get(number, (None, None))
        if boots != host.boots:
            hand = host.hand()
            self.hands[number] = (hand, host.boots)
        return hand

    @property
    def first(self):
        return self.hand(1)

    @property
    def second(self):
        return self.hand(2)

    @property
    def beside(self):
        """A second hand on the first host."""
        if "beside" not in self.hands:
            self.hands["beside"] = (self.cluster.host(1).hand(), None)
        return self.hands["beside"][0]

    def path(self, name):
        return f"{self.folder}/{name}"

    def equal_files(self, *names, blocks):
        """Files that hold the same, made by the first host. Returns its hand, which has them open."""
        for name in names:
            self.first.make(name, self.path(name), [[100, blocks]])
        return self.first

    def end(self):
        for hand, _ in self.hands.values():
            try:
                hand.end()
            except (OSError, ValueError):
                pass


def places(extents):
    """The place of each block."""
    return {first + at: place + at for first, place, count, _ in extents for at in range(count)}
