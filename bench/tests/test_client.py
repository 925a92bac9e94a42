"""The client does what it says, and notices wrong data."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

from paths import CLIENT  # it makes the next import possible
from lib.data import BLOCK_BYTES, CHUNK_BYTES, UniqueData  # noqa: I001


class Client(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "file")

    def client(self, *words):
        command = [sys.executable, "-B", CLIENT, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def done(self, *words):
        finished = self.client(*words)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        answer = json.loads(finished.stdout)
        self.assertGreater(answer["seconds"], 0)
        return answer

    def write(self, chunks, seed):
        self.done("write", self.path, f"--bytes={chunks * CHUNK_BYTES}", f"--seed={seed}")

    def test_writes_the_stream_of_its_seed(self):
        self.write(chunks=3, seed=5)
        data = UniqueData(5)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"".join(bytes(data.chunk(index)) for index in range(3)))

    def test_reads_back_what_it_wrote(self):
        self.write(chunks=2, seed=5)
        self.done("read", self.path, f"--bytes={2 * CHUNK_BYTES}", "--seed=5")

    def test_a_read_of_something_else_fails(self):
        self.write(chunks=2, seed=5)
        finished = self.client("read", self.path, f"--bytes={CHUNK_BYTES}", "--seed=6")
        self.assertIn("not what was written", finished.stderr)

    def test_a_read_of_too_short_a_file_fails(self):
        self.write(chunks=2, seed=5)
        self.assertNotEqual(self.client("read", self.path, f"--bytes={3 * CHUNK_BYTES}", "--seed=5").returncode, 0)

    def test_half_a_chunk_is_wrong_usage(self):
        self.assertEqual(self.client("write", self.path, "--bytes=4096").returncode, 2)

    def test_every_second_block_is_punched_out(self):
        self.write(chunks=2, seed=5)
        self.done("punch-every-second", self.path, f"--bytes={2 * CHUNK_BYTES}")
        data = UniqueData(5)
        with open(self.path, "rb") as file:
            for index in range(2):
                expected = bytearray(data.chunk(index))
                for start in range(0, CHUNK_BYTES, 2 * BLOCK_BYTES):
                    expected[start : start + BLOCK_BYTES] = bytes(BLOCK_BYTES)
                self.assertEqual(file.read(CHUNK_BYTES), bytes(expected))

    def test_a_poke_changes_one_block_in_the_middle(self):
        self.write(chunks=2, seed=5)
        with open(self.path, "rb") as file:
            before = file.read()
        self.done("poke", self.path, "--seed=6")
        with open(self.path, "rb") as file:
            after = file.read()
        changed = {at // 4096 for at in range(len(before)) if before[at] != after[at]}
        self.assertEqual((changed, len(after)), ({256}, len(before)))

    def test_streams_written_at_once_are_all_whole_and_all_different(self):
        self.done("write-streams", self.path, "--count=2", f"--bytes={2 * CHUNK_BYTES}", "--seed=5")
        for number, seed in ((0, 5), (1, 105)):
            self.done("read", f"{self.path}-{number}", f"--bytes={2 * CHUNK_BYTES}", f"--seed={seed}")
            self.assertEqual(os.path.getsize(f"{self.path}-{number}"), 2 * CHUNK_BYTES)

    def test_churn_goes_on_with_new_data_until_it_is_killed(self):
        command = [sys.executable, "-B", CLIENT, "churn", self.path, f"--bytes={CHUNK_BYTES}", "--seed=5"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        seen = set()
        deadline = time.monotonic() + 30
        while len(seen) < 5 and time.monotonic() < deadline:
            for number in (0, 1):
                try:
                    with open(f"{self.path}-{number}", "rb") as file:
                        seen.add(file.read(8))
                except FileNotFoundError:
                    pass
            time.sleep(0.01)
        self.assertIsNone(process.poll())
        process.kill()
        process.wait()
        data = UniqueData(5)
        stamps = {int.from_bytes(begin, "little") for begin in seen if begin}
        self.assertTrue(len(seen) >= 5 and stamps <= {data.stamp(256 * number) for number in range(1 << 16)})
        # One of them may be gone, where the next was to be made.
        self.assertLessEqual(set(os.listdir(self.folder)), {"file-0", "file-1"})

    def test_a_stream_that_fails_fails_the_job(self):
        os.mkdir(f"{self.path}-1")
        finished = self.client("write-streams", self.path, "--count=2", f"--bytes={CHUNK_BYTES}")
        self.assertNotEqual(finished.returncode, 0)

    def test_shuffled_data_is_read_back_as_it_was_written(self):
        words = ("--data=shuffled", f"--bytes={4 * CHUNK_BYTES}", "--count=2", "--seed=5", "--run-bytes=65536")
        self.done("write", self.path, *words)
        self.done("read", self.path, *words)
        self.assertNotEqual(self.client("read", self.path, *words[:-1]).returncode, 0)

    def test_an_overwritten_file_is_read_back_and_told_from_one_that_is_not(self):
        # So long that some chunk begins with an overwritten block.
        words = (f"--bytes={64 * CHUNK_BYTES}", "--seed=5", "--overwriting-seed=6")
        self.write(chunks=64, seed=5)
        with open(self.path, "rb") as file:
            before = file.read()
        self.done("overwrite", self.path, *words)
        with open(self.path, "rb") as file:
            after = file.read()
        changed = {at for at in range(0, len(before), 4096) if before[at : at + 4096] != after[at : at + 4096]}
        self.assertEqual((len(changed), len(after)), (64 * 256 // 10, len(before)))
        self.done("read", self.path, "--data=overwritten", *words)
        self.assertNotEqual(self.client("read", self.path, *words).returncode, 0)

    def test_small_files_come_and_go(self):
        self.done("create-files", self.folder, "--count=300")
        names = os.listdir(self.folder)
        contents = set()
        for name in names:
            with open(os.path.join(self.folder, name), "rb") as file:
                contents.add(file.read())
        self.assertEqual((len(names), len(contents)), (300, 300))
        self.done("stat-files", self.folder, "--count=300")
        self.done("unlink-files", self.folder, "--count=300")
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
