"""A network that delays, reorders, repeats and loses packets."""

from cases.links import expect_multicast
from network import RoughSwitch


def weather(lab, folder, dice):
    """Three machines install while packets are delayed by up to 40 ms each, come twice, or do not arrive."""
    words = ("--seed", dice.randrange(1 << 31), "--delay-ms", 1, 40, "--repeat", 0.02, "--lose", 0.01,
             "--burst", 0.0005, 30)  # fmt: skip
    switch = RoughSwitch(4, *words)
    with lab.served(folder, switch, rate="3M") as site:
        expect_multicast(site.finish(site.start(site.machines(3)), 120), "a switch that delays", 0.8)
        lab.note(f"frames: {switch.told()}")
