#!/usr/bin/env python3
"""A switch between TAP devices that delays, reorders, repeats and loses frames, by a seed.

    switch.py PORTS [--seed N] [--delay-ms LEAST MOST] [--repeat P] [--lose P] [--burst P LENGTH]

Makes the devices tap1 to tapN, prints `ready`, and ends with its standard input, or with its parent. Each frame is
delayed on its own, so frames overtake each other. What becomes of the frames to a port depends on the seed, on the
port, and on how many came before.
"""

import argparse
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import sys
import time
from collections import Counter

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 2, 0x1000
FRAME_BYTES_MAX = 1 << 16
# Frames that wait. Further ones are lost, as by a switch whose memory is full.
WAITING_MAX = 20_000
# Frames of one port that are taken before the other ports have their turn.
TURN_FRAMES = 64
# The bit of an address that stands for more than one machine.
MANY = 1


class Weather:
    """What becomes of the frames to one port."""

    def __init__(self, dice, delay_s=(0, 0), repeat=0, lose=0, burst=(0, 0)):
        self.dice, self.delay_s, self.repeat, self.lose, self.burst = dice, delay_s, repeat, lose, burst
        self.burst_left = 0

    def fate(self):
        """Returns the delays of the copies of the next frame that arrive: of none, one or two."""
        if self.burst_left > 0:
            self.burst_left -= 1
            return []
        if self.dice.random() < self.burst[0]:
            self.burst_left = int(self.burst[1]) - 1
            return []
        if self.dice.random() < self.lose:
            return []
        copies = 2 if self.dice.random() < self.repeat else 1
        return [self.dice.uniform(*self.delay_s) for _ in range(copies)]


class Switch:
    """Frames under way between ports, which are numbered from 0."""

    def __init__(self, weathers):
        self.weathers = weathers
        self.places = {}
        self.waiting, self.order = [], itertools.count()
        self.counts = Counter()

    def take(self, port, frame, now):
        """Takes a frame that a port has sent."""
        target, source = frame[:6], frame[6:12]
        self.places[source] = port
        if target[0] & MANY or target not in self.places:
            ports = [other for other in range(len(self.weathers)) if other != port]
        else:
            ports = [self.places[target]]
        for other in ports:
            delays = self.weathers[other].fate()
            self.counts["lost" if not delays else "repeated" if len(delays) > 1 else "passed"] += 1
            for delay in delays:
                if len(self.waiting) >= WAITING_MAX:
                    self.counts["without room"] += 1
                else:
                    heapq.heappush(self.waiting, (now + delay, next(self.order), other, frame))

    def due(self, now):
        """Yields the frames that arrive by now, each with its port."""
        while self.waiting and self.waiting[0][0] <= now:
            _, _, port, frame = heapq.heappop(self.waiting)
            yield port, frame

    def pause(self, now):
        """Returns the seconds until the next frame arrives, or None."""
        return max(0, self.waiting[0][0] - now) if self.waiting else None


def open_tap(name):
    """Makes a TAP device, and returns its descriptor. The device goes with it."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def carry(switch, taps):
    """Carries frames until the standard input ends."""
    ports = {tap: port for port, tap in enumerate(taps)}
    poll = select.poll()
    for descriptor in (0, *taps):
        poll.register(descriptor, select.POLLIN)
    while True:
        pause = switch.pause(time.monotonic())
        for descriptor, _ in poll.poll(None if pause is None else pause * 1000):
            if descriptor == 0:
                if not os.read(0, 1):
                    return
                continue
            for _ in range(TURN_FRAMES):
                try:
                    frame = os.read(descriptor, FRAME_BYTES_MAX)
                except OSError:
                    # No more frames, or the device is down.
                    break
                switch.take(ports[descriptor], frame, time.monotonic())
        for port, frame in switch.due(time.monotonic()):
            try:
                os.write(taps[port], frame)
            except OSError:
                # The device is down, or takes no more.
                switch.counts["refused"] += 1


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ports", type=int)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--delay-ms", type=float, nargs=2, default=(0, 0))
    parser.add_argument("--repeat", type=float, default=0)
    parser.add_argument("--lose", type=float, default=0)
    parser.add_argument("--burst", type=float, nargs=2, default=(0, 0))
    return parser.parse_args(words)


def main():
    options = parse(sys.argv[1:])
    delay_s = [milliseconds / 1000 for milliseconds in options.delay_ms]
    weathers = [
        Weather(random.Random(f"{options.seed}/{port}"), delay_s, options.repeat, options.lose, options.burst)
        for port in range(options.ports)
    ]
    switch = Switch(weathers)
    taps = [open_tap(f"tap{port + 1}") for port in range(options.ports)]
    print("ready", flush=True)
    carry(switch, taps)
    print(", ".join(f"{count} {what}" for what, count in sorted(switch.counts.items())), flush=True)


if __name__ == "__main__":
    main()
