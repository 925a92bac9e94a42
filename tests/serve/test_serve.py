"""The trial can say no: a wrong byte, a machine that does not end, a network that passes what it should lose."""

import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import query
import trial
from network import Bridge, Namespace, Network, RoughSwitch
from programs import HERE, Failed, wait_until
from service import SECTOR_BYTES, Client, Server, expect_equal, expect_no_wrong_byte, loss, multicast_share
from switch import Switch, Weather

MIB = 1 << 20
# Stands for the program: it installs, panics or hangs as the name of the image says.
PROGRAM = """#!/bin/bash
case "$*" in
    *panics*) echo "thread 'main' panicked at here" >&2; exit 101 ;;
    *hangs*) sleep 60 ;;
    *fails*) echo 'error: no' >&2; exit 1 ;;
    *) echo '{"multicast": {"chunks": 3, "http_chunks": 1}}' ;;
esac
"""
# Makes a network, tells of its processes, and waits to be killed.
VICTIM = """
import sys, time
sys.path.insert(0, sys.argv[1])
from network import Bridge, Network
with Network(Bridge()) as network:
    machine = network.machine()
    with machine.started("sleep", 60) as process:
        print(machine.holder.pid, network.fabric.space.holder.pid, process.pid, flush=True)
        time.sleep(60)
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path


class Disks(Folder):
    def test_one_wrong_byte_is_a_failure_and_its_place_is_told(self):
        content = random.Random(1).randbytes(3 * MIB + 5)
        image = self.write("image", content)
        expect_equal(self.write("target", content), image)
        for at in (0, MIB, 3 * MIB + 4):
            wrong = bytearray(content)
            wrong[at] ^= 1
            with self.assertRaisesRegex(Failed, f"at byte {at}"):
                expect_equal(self.write("target", wrong), image)
        with self.assertRaisesRegex(Failed, "bytes"):
            expect_equal(self.write("target", content[:-1]), image)

    def test_half_an_image_has_old_and_new_sectors_and_nothing_else(self):
        dice = random.Random(2)
        new, old = dice.randbytes(4 * MIB), dice.randbytes(4 * MIB)
        image, before = self.write("image", new), self.write("before", old)
        half = bytearray(old)
        half[2 * MIB : 2 * MIB + 10 * SECTOR_BYTES] = new[2 * MIB : 2 * MIB + 10 * SECTOR_BYTES]
        half[: 100 * SECTOR_BYTES] = bytes(100 * SECTOR_BYTES)
        expect_no_wrong_byte(self.write("target", half), image, before)
        for at in (2 * MIB, 2 * MIB + 9 * SECTOR_BYTES, MIB + 7 * SECTOR_BYTES, 5):
            wrong = bytearray(half)
            wrong[at] ^= 1
            with self.assertRaisesRegex(Failed, "wrong sector"):
                expect_no_wrong_byte(self.write("target", wrong), image, before)
        half[2 * MIB : 2 * MIB + SECTOR_BYTES] = bytes(SECTOR_BYTES)
        with self.assertRaisesRegex(Failed, f"at byte {2 * MIB}"):
            expect_no_wrong_byte(self.write("target", half), image, before)


class Switching(unittest.TestCase):
    def frames(self, seed, **weather):
        """Returns which frames of a hundred arrive, in their order."""
        switch = Switch([Weather(random.Random(f"{seed}/{port}"), **weather) for port in range(3)])
        for number in range(100):
            switch.take(0, b"\x01\0\x5e\0\0\1" + b"source" + struct.pack("!H", number), number * 0.001)
        return [(port, struct.unpack("!H", frame[12:])[0]) for port, frame in switch.due(100)]

    def test_a_seed_brings_back_the_same_and_ports_differ(self):
        weather = {"delay_s": (0, 0.02), "repeat": 0.1, "lose": 0.1}
        first = self.frames(1, **weather)
        self.assertEqual(first, self.frames(1, **weather))
        self.assertNotEqual(first, self.frames(2, **weather))
        one, two = ([number for port, number in first if port == wanted] for wanted in (1, 2))
        self.assertNotEqual(one, two)
        self.assertNotEqual(one, sorted(one))
        self.assertLess(len(set(one)), 100)
        self.assertLess(len(set(one)), len(one))

    def test_a_good_switch_keeps_order_and_loses_nothing(self):
        self.assertEqual(self.frames(1), [(port, number) for number in range(100) for port in (1, 2)])

    def test_bursts_are_lost_in_a_row(self):
        arrived = {number for port, number in self.frames(3, burst=(0.02, 10)) if port == 1}
        lost = [number for number in range(100) if number not in arrived]
        self.assertGreaterEqual(len(lost), 10)
        self.assertEqual(lost[:10], list(range(lost[0], lost[0] + 10)))

    def test_a_known_address_has_one_port(self):
        switch = Switch([Weather(random.Random(port)) for port in range(3)])
        switch.take(2, b"\0other" + b"\0owner", 0)
        self.assertEqual([port for port, _ in switch.due(1)], [0, 1])
        switch.take(0, b"\0owner" + b"\0other", 1)
        self.assertEqual([port for port, _ in switch.due(2)], [2])

    def test_a_query_has_the_checksum_that_the_standard_asks_for(self):
        total = sum(struct.unpack("!6H", query.query()))
        self.assertEqual((total & 0xFFFF) + (total >> 16), 0xFFFF)


class Machines(Folder):
    """Real namespaces."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("namespaces need root")
        self.program = self.write("onefold", PROGRAM.encode())
        self.program.chmod(0o755)

    def test_machines_reach_each_other_until_the_cable_is_pulled(self):
        for fabric in (Bridge(), RoughSwitch(2)):
            with Network(fabric) as network:
                one, two = network.machine(), network.machine()
                self.reach(one, two)
                if isinstance(fabric, Bridge):
                    two.cut()
                    self.assertFalse(can_reach(one, two))
                    two.mend()
                    self.reach(one, two)
                two.drop("ip protocol tcp")
                self.assertFalse(can_reach(one, two))
                two.hear()
                self.reach(one, two)

    def reach(self, one, two):
        wait_until(lambda: can_reach(one, two), 10, "a machine reaches the other one")

    def test_all_is_gone_after_a_kill(self):
        victim = subprocess.Popen([sys.executable, "-c", VICTIM, HERE], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)  # fmt: skip
        try:
            processes = [int(word) for word in victim.stdout.readline().split()]
            self.assertEqual(len(processes), 3)
        finally:
            victim.kill()
            victim.wait()
            victim.stdout.close()
        wait_until(lambda: not any(map(is_running, processes)), 5, "the processes are gone")

    def install(self, image, seconds=10):
        space = Namespace()
        self.addCleanup(space.close)
        space.number, server = 1, mock.Mock(url="https://192.0.2.1:7443", access=lambda: ())
        client = Client(space, self.program, server, image, self.folder / "disk")
        self.addCleanup(client.kill)
        return client.start().result(seconds)

    def test_clients_that_fail_panic_or_hang_are_failures(self):
        report = self.install("web")
        self.assertEqual(multicast_share(report), 0.75)
        for image, seconds, said in (("fails", 10, "ended with 1: error: no"), ("panics", 10, "panicked"),
                                     ("hangs", 0.2, "not done within")):  # fmt: skip
            with self.assertRaisesRegex(Failed, said):
                self.install(image, seconds)

    def test_a_server_that_ends_is_a_failure(self):
        with Network(Bridge()) as network:
            server = Server(network.machine(), self.program, "fails", self.folder / "log")
            with self.assertRaisesRegex(Failed, "the server ended with 1"):
                server.start()


def can_reach(one, two):
    code = f"import socket; socket.create_connection(('{two.address}', 9), 0.5)"
    # Nothing listens, so a machine that is reached refuses.
    return "refused" in one.run(sys.executable, "-c", code).stderr


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].startswith(" Z")


class Figures(unittest.TestCase):
    def test_shares_and_losses_are_computed_from_reports(self):
        report = {"multicast": {"chunks": 9, "http_chunks": 1, "received_packets": 95, "sent_packets": 100}}
        self.assertEqual((multicast_share(report), round(loss(report), 6)), (0.9, 0.05))

    def test_waiting_ends(self):
        began = time.monotonic()
        with self.assertRaisesRegex(Failed, "not within 0.1 s: nothing"):
            wait_until(lambda: False, 0.1, "nothing")
        self.assertLess(time.monotonic() - began, 5)


class Arguments(Folder):
    def test_cases_and_images_are_looked_at_first(self):
        for words in (["--cases", "nothing"], ["--boot", "/nowhere/a.raw"]):
            with self.assertRaises(SystemExit), mock.patch("sys.stderr"):
                trial.parse(["--onefold", "o", *words])
        self.assertNotIn("boot", trial.parse(["--onefold", "o"]).cases)
        image = self.write("image", b"")
        self.assertIn("boot", trial.parse(["--onefold", "o", "--boot", str(image)]).cases)

    def test_a_failed_case_fails_the_trial_and_the_others_run(self):
        def fails(_lab, _folder, _dice):
            """Fails."""
            raise Failed("no")

        def passes(lab, _folder, _dice):
            """Passes."""
            lab.counts["disks"] += 1

        with mock.patch.dict(trial.CASES, {"fails": fails, "passes": passes}), \
                mock.patch("sys.stdout"), mock.patch.object(trial.Lab, "prepare"):
            options = trial.parse(["--onefold", "o", "--cases", "fails,passes"])
            tried = trial.Trial(options, self.folder)
            tried.run()
        self.assertEqual((tried.failed, tried.counts["disks"], tried.counts["cases"]), (["fails"], 1, 1))

    def test_rounds_go_on_until_enough_was_killed(self):
        def kills(lab, _folder, _dice):
            """Kills two."""
            lab.counts["kills"] += 2

        for words, rounds in ((["--kills", "5"], 3), (["--kills", "0"], 1), ([], 1)):
            with mock.patch.dict(trial.CASES, {"kills": kills}), \
                    mock.patch("sys.stdout"), mock.patch.object(trial.Lab, "prepare"):
                tried = trial.Trial(trial.parse(["--onefold", "o", "--cases", "kills", *words]), self.folder)
                tried.run()
            self.assertEqual(tried.counts["cases"], rounds)


if __name__ == "__main__":
    unittest.main()
