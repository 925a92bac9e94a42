"""The rows about sharing, without a file system to measure."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import paths  # it makes the next imports possible
import common
import share  # noqa: I001
from lib import corpus, report, settings
from lib.data import BLOCK_BYTES, CHUNK_BYTES, ImageData, UniqueData
from lib.measure import Cost, Measured, NotMeasured, Sample
from lib.place import Place
from lib.rows.beside import ONEFOLD, OTHER, BesideLine
from lib.runner import Run
from lib.system import BenchError
from share_rows import PARTS, batches, cuts, fio, index, maps, rates, reads, rows, sets
from share_rows.ground import XFS, Ground, Pass
from share_rows.row import ShareBench, ShareRow

SIZES = settings.SHARE
GIB = 1 << 30


def blocks_of(data, length):
    """Returns the blocks of a stream, one after the other."""
    for number in range(length // CHUNK_BYTES):
        chunk = bytes(data.chunk(number))
        yield from (chunk[at : at + BLOCK_BYTES] for at in range(0, CHUNK_BYTES, BLOCK_BYTES))


class Sizes(unittest.TestCase):
    def test_what_is_written_fits_the_disk(self):
        # XFS takes no smaller one than 300 MiB.
        for chosen in SIZES:
            self.assertGreaterEqual(chosen.device_bytes, 320 << 20)
            for length in (chosen.shuffled_bytes, chosen.runs_bytes, chosen.guest_bytes, chosen.read_bytes):
                self.assertLess(3 * length, chosen.device_bytes, chosen.mode)
                self.assertEqual(length % (2 * CHUNK_BYTES), 0)
            self.assertLess(2 * sets.stored_bytes(chosen), chosen.device_bytes)
            self.assertLess(2 * chosen.images_bytes_max, chosen.device_bytes)
            chunks = chosen.cut_image_bytes // CHUNK_BYTES
            cut_bytes = chosen.cut_images * ImageData.stored_blocks(chunks) * BLOCK_BYTES
            self.assertLess(1.5 * cut_bytes, chosen.device_bytes, chosen.mode)
            # The index, and a part of it that is copied or written anew.
            index_bytes = 22 * chosen.index_entries
            self.assertLess(index_bytes + min(index_bytes, index.COPY_BYTES_MAX), chosen.device_bytes)

    def test_a_third_of_the_file_that_is_read_is_whole_chunks(self):
        for chosen in SIZES:
            self.assertEqual(chosen.read_bytes % (3 * CHUNK_BYTES), 0)

    def test_a_full_run_has_an_index_of_a_tebibyte(self):
        self.assertEqual(settings.SHARE.full.index_entries * BLOCK_BYTES, 1 << 40)
        self.assertEqual([index.amount(1 << 28), index.amount(1 << 23), index.amount(1)], ["1 TiB", "32 GiB", "4 KiB"])

    def test_made_up_images_of_a_full_run_are_several_small_batches_and_at_most_one_large_one(self):
        chosen = settings.SHARE.full
        # All that an image has of its own is in the next one, too.
        of_one = ImageData.OWN * ImageData.RUN_BLOCKS
        contents = (chosen.images_made - 1) * of_one * (chosen.image_bytes // CHUNK_BYTES)
        self.assertGreater(contents, (batches.BATCHES_MIN - 1) * batches.SLOTS_SMALL)
        self.assertLessEqual(contents, batches.SLOTS_MAX)
        contents = (chosen.cut_images - 1) * of_one * (chosen.cut_image_bytes // CHUNK_BYTES)
        self.assertGreater(contents, cuts.CUTS * batches.SLOTS_SMALL)

    def test_the_demos_images_come_first_and_others_as_long_as_they_fit(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("b.raw", "a.raw", "debian-12-web.raw"):
                (Path(folder) / name).write_bytes(b"x" * BLOCK_BYTES)
            stored = (Path(folder) / "a.raw").stat().st_blocks * 512
            found = corpus.find_images(Path(folder), 2 * stored)
        self.assertEqual([image.name for image in found], ["debian-12-web.raw", "a.raw"])


class Rows(unittest.TestCase):
    def test_names_of_rows_and_keys_of_lines_are_told_apart(self):
        for chosen in SIZES:
            common.assert_told_apart(self, [row for part in PARTS for row in rows(part, chosen)])

    def test_lines_of_both_file_systems_say_which_they_are_of(self):
        for row in rows("speed", settings.SHARE.full) + rows("costs", settings.SHARE.full):
            if row.base != "index":
                self.assertIn(row.where, row.lines[0].title)

    def test_the_rate_of_freeing_is_none_where_records_took_more_than_was_freed(self):
        row = sets.SetRow(settings.SHARE.tiny, XFS)
        samples = list(row._freed("4k", OTHER, -(5 << 20), Cost(2.0)))
        self.assertEqual([sample.value for _, _, sample in samples], [-5.0, 0.0])

    def test_a_row_for_another_file_system_needs_its_program(self):
        row = sets.SetRow(settings.SHARE.tiny, XFS)
        with mock.patch("lib.rows.beside.shutil.which", lambda _: None):
            self.assertEqual(row.why_not(settings.SHARE.tiny), "there is no duperemove")
        with mock.patch("share_rows.row.system.run", side_effect=BenchError("cannot run mkfs.xfs")):
            row = rates.CopyRow(settings.SHARE.tiny, XFS)
            self.assertEqual(row.why_not(settings.SHARE.tiny), "cannot run mkfs.xfs")


class Data(unittest.TestCase):
    def test_the_pairs_of_the_shuffled_file_are_equal_blocks(self):
        chosen = replace(settings.SHARE.tiny, shuffled_bytes=2 * CHUNK_BYTES)
        row = rates.ShuffledRow(chosen, XFS)
        source = list(blocks_of(UniqueData(3), chosen.shuffled_bytes))
        target = list(blocks_of(row.data(chosen, 3), chosen.shuffled_bytes))
        pairs = row.pairs(chosen)
        self.assertEqual([target[to] for _, to, _ in pairs], [source[start] for start, _, _ in pairs])
        self.assertEqual(sorted(to for _, to, _ in pairs), list(range(len(target))))
        # Hardly any two neighbours are still neighbours.
        starts = [start for start, _, _ in pairs]
        self.assertLess(sum(one + 1 == other for one, other in zip(starts, starts[1:])), len(pairs) // 20)

    def test_every_second_block_of_the_interleaved_file_is_the_other_ones(self):
        length = 2 * CHUNK_BYTES
        found = list(blocks_of(rates.InterleavedData(3, 4), length))
        self.assertEqual(found[::2], list(blocks_of(UniqueData(3), length // 2)))
        self.assertEqual(found[1::2], list(blocks_of(UniqueData(4), length // 2)))

    def test_the_file_that_is_read_has_the_blocks_of_the_other_one_in_runs_of_three_lengths(self):
        stream_blocks = 2 * CHUNK_BYTES // BLOCK_BYTES
        seeds, length = (3, 4, 5), 6 * CHUNK_BYTES
        source = list(blocks_of(reads.StreamsData(seeds, stream_blocks), length))
        target = list(blocks_of(reads.RunsData(seeds, stream_blocks), length))
        place = {block: number for number, block in enumerate(source)}
        places = [place[block] for block in target]
        self.assertEqual(sorted(places), list(range(len(source))))
        for part, run_blocks in enumerate(reads.RUN_BLOCKS):
            those = places[part * stream_blocks : (part + 1) * stream_blocks]
            broken = sum(one + 1 != other for one, other in zip(those, those[1:]))
            self.assertLess(broken, stream_blocks // run_blocks)
            self.assertGreaterEqual(broken, stream_blocks // run_blocks * 9 // 10 - 1)


def users_of(path):
    """Returns the processes that have a file open."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        # Processes end while they are looked at, and some are not ours.
        with contextlib.suppress(OSError):
            if os.readlink(link) == str(path):
                found.append(link)
    return found


class Told(unittest.TestCase):
    def ground(self, told):
        ground = Ground(Place(Path("/nowhere")), mock.Mock(), XFS)
        ground.timed = mock.Mock(return_value=(mock.Mock(text=json.dumps(told), seconds=2.0), Cost(1.0)))
        return ground

    def test_a_pass_with_trouble_is_a_failure_but_not_where_a_guest_wrote(self):
        quiet = {"trouble": {"full": False, "busy": [], "changed_blocks": 7}, "seconds_of": {"plan": 1.0, "share": 2.0}}
        done = self.ground(quiet).share()
        self.assertEqual((done.seconds, done.seconds_of("plan", "share")), (2.0, 3.0))
        with self.assertRaisesRegex(BenchError, "busy"):
            self.ground({"trouble": {"busy": ["a"]}}).share()

    def test_a_rate_of_less_work_is_a_failure(self):
        ground = Ground(Place(Path("/nowhere")), mock.Mock(), XFS)
        told = {"shared": {"now_bytes": 98 * BLOCK_BYTES, "before_bytes": 0}}
        with self.assertRaisesRegex(BenchError, "98 of 100 blocks"):
            ground.shared_or_raise(told, 100 * BLOCK_BYTES, "row")
        told["shared"]["before_bytes"] = BLOCK_BYTES
        ground.shared_or_raise(told, 100 * BLOCK_BYTES, "row")

    def test_only_writes_in_flight_during_a_time_are_taken_of_a_log(self):
        # Done at so many ms, after so many ns; 0 is a read.
        lines = ["900, 50000000, 1", "1100, 200000000, 1", "1200, 1000000, 0", "1500, 7000000, 1", "2300, 400000000, 1"]
        lines.append("2500, 400000000, 1")
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            Path(f"{log}_clat.1.log").write_text("".join(f"{line}, 4096, 0\n" for line in lines), encoding="ascii")
            taken = fio.logged_writes(log, 1.0, 2.0)
            self.assertEqual([round(write.done_at * 1000) for write in taken], [1100, 1500, 2300])
            self.assertEqual([round(write.seconds * 1000) for write in taken], [200, 7, 400])
            self.assertEqual(fio.logged_writes(log, 3.0, 4.0), [])

    def test_what_fio_says_before_its_account_is_passed_over_and_its_errors_are_not(self):
        self.assertEqual(fio.job_of('fio: terminating\n{"jobs": [{"error": 0}]}')["error"], 0)
        for text in ('{"jobs": [{"error": 84}]}', "", "fio: no"):
            with self.assertRaises(BenchError):
                fio.job_of(text)

    @unittest.skipUnless(shutil.which("fio"), "needs fio")
    def test_nothing_of_fio_stays_where_what_it_stands_beside_fails(self):
        # Its job went on for an hour, on the file system of a row that had failed.
        with tempfile.TemporaryDirectory() as folder:
            guest = Path(folder) / "guest"
            guest.write_bytes(bytes(1 << 20))
            with self.assertRaisesRegex(BenchError, "the pass failed"):
                with fio.Beside(guest, 1 << 20, 1, rw="randwrite", direct=0):
                    ends = time.monotonic() + 30
                    while not users_of(guest) and time.monotonic() < ends:
                        time.sleep(0.1)
                    self.assertTrue(users_of(guest), "fio has not begun")
                    raise BenchError("the pass failed")
            self.assertEqual(users_of(guest), [])

    def test_a_merge_that_read_files_is_a_failure(self):
        row = index.IndexRow(settings.SHARE.tiny, XFS)
        told = {"index": {}, "scanned": {"read_bytes": 1}, "planned": {"new": settings.SHARE.tiny.index_news}}
        ground = mock.Mock()
        ground.share.return_value = Pass(told, 1.0, Cost())
        with mock.patch.object(index, "system", BenchError=BenchError), mock.patch.object(row, "_copy"):
            with self.assertRaisesRegex(BenchError, "something else"):
                list(row.measure(ground, settings.SHARE.tiny, 0))


class Maps(unittest.TestCase):
    def layout(self, *files):
        entries = {name: [maps.Extent(*numbers) for numbers in file] for name, file in enumerate(files)}
        with mock.patch.object(maps, "entries_of", entries.get):
            return maps.Layout.of(entries)

    def test_entries_that_go_on_with_one_another_are_one_extent(self):
        # The third lies elsewhere, the fourth comes after a hole.
        layout = self.layout([(0, 100, 10), (10, 110, 10), (20, 200, 10), (40, 210, 10)])
        self.assertEqual((layout.extents, layout.mapped_bytes, layout.shared_bytes), (3, 40, 0))

    def test_each_place_counts_once_however_many_files_have_it(self):
        layout = self.layout([(0, 100, 50)], [(0, 120, 10), (10, 140, 20)], [(0, 100, 50)], [(0, 300, 5)])
        self.assertEqual((layout.mapped_bytes, layout.distinct_bytes, layout.shared_bytes), (135, 65, 70))
        self.assertEqual(self.layout([]), maps.Layout(0, 0, 0))

    def test_the_kernels_map_of_a_file_has_its_data_and_no_holes(self):
        file = paths.disk_folder(self) / "file"
        with open(file, "wb") as out:
            out.write(b"x" * CHUNK_BYTES)
            out.seek(CHUNK_BYTES, os.SEEK_CUR)
            out.write(b"y" * CHUNK_BYTES)
        try:
            found = maps.extents_of(file)
        except OSError as error:
            self.skipTest(f"no maps there: {error}")
        self.assertEqual(sum(extent.length for extent in found), 2 * CHUNK_BYTES)
        self.assertEqual((found[0].offset, found[-1].offset + found[-1].length), (0, 3 * CHUNK_BYTES))
        self.assertFalse(any(extent.offset in range(CHUNK_BYTES, 2 * CHUNK_BYTES) for extent in found))


class Cuts(unittest.TestCase):
    def runs(self, *tolds):
        """Returns the parts of a pass whose runs say that, and after how long each was interrupted."""
        parts = [cuts.Part(1.0, 0, 0, told) for told in tolds]
        with mock.patch.object(cuts, "run_for", side_effect=parts) as run_for:
            found = cuts.cut(None, 0.5)
        return found, [call.args[1] for call in run_for.call_args_list]

    def test_a_pass_is_interrupted_eight_times_and_the_ninth_run_is_left_alone(self):
        found, seconds = self.runs(*[None] * 8, {})
        self.assertEqual((len(found), seconds), (9, [0.5] * 8 + [None]))

    def test_a_pass_that_is_complete_earlier_is_a_failure(self):
        found, _ = self.runs(None, {})
        row = cuts.CutRow(settings.SHARE.full, XFS)
        state = cuts.State(shared_bytes=4096, arena_bytes=4096)
        with self.assertRaisesRegex(BenchError, "after 1 of 8"):
            row._ensure_comparable(found, state, state, settings.SHARE.full)

    def test_a_pass_that_shares_less_or_leaves_slots_is_a_failure(self):
        row, chosen = cuts.CutRow(settings.SHARE.tiny, XFS), settings.SHARE.tiny
        wanted = cuts.State(shared_bytes=8192, arena_bytes=8192)
        row._ensure_comparable([], cuts.State(8192, 4096), wanted, chosen)
        for found, why in ((cuts.State(4096, 8192), "4096 bytes are shared"), (cuts.State(8192, 12288), "holds 12288")):
            with self.assertRaisesRegex(BenchError, why):
                row._ensure_comparable([], found, wanted, chosen)

    def test_only_what_the_signal_ended_was_interrupted(self):
        self.assertTrue(cuts.was_interrupted(130, "error: interrupted while sharing"))
        self.assertTrue(cuts.was_interrupted(-signal.SIGINT, ""))
        self.assertFalse(cuts.was_interrupted(1, "error: interrupted while sharing"))
        self.assertFalse(cuts.was_interrupted(255, "interrupted"))

    def test_a_program_is_interrupted_at_its_time_and_told_of_what_it_read(self):
        for seconds, code in ((0.05, -signal.SIGINT), (None, 0), (20, 0)):
            # A shell starts what it puts in the background with SIGINT ignored, and its children inherit that.
            process = subprocess.Popen(
                ["sleep", "20" if code else "0.05"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
            )
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            cuts.wait_until_ended(process, seconds)
            self.assertGreater(cuts.system.read_by(process.pid), 0)
            self.assertEqual(process.wait(), code)


class Batches(unittest.TestCase):
    def test_another_number_of_batches_than_is_meant_is_a_failure(self):
        row = batches.BatchRow(settings.SHARE.full, XFS)
        small = (batches.BATCHES_MIN - 1) * batches.SLOTS_SMALL
        row._ensure_batches(ONEFOLD, small + 1, settings.SHARE.full)
        row._ensure_batches(OTHER, batches.SLOTS_MAX, settings.SHARE.full)
        row._ensure_batches(ONEFOLD, 1, settings.SHARE.tiny)
        for side, promoted in ((ONEFOLD, small), (OTHER, batches.SLOTS_MAX + 1)):
            with self.assertRaises(BenchError):
                row._ensure_batches(side, promoted, settings.SHARE.full)

    def test_calls_are_those_that_clone_and_those_that_share(self):
        self.assertEqual(batches.calls_of({"calls": {"clones": 3, "shares": 4}}), 7)
        with self.assertRaisesRegex(BenchError, "older"):
            batches.calls_of({})


class FakeRow(ShareRow):
    base = "fake"

    def __init__(self, fails=False):
        super().__init__(settings.SHARE.tiny, XFS)
        self._fails = fails

    def make_lines(self, settings):
        yield BesideLine("fake-xfs", "a line", "MB/s", goal="0.8x", beside="bare calls", paper="2.6 MB/s")

    def missing(self, settings):
        return None

    def measure(self, ground, settings, round_no):
        if self._fails:
            raise BenchError("as it was told")
        yield "fake-xfs", ONEFOLD, Sample(8.0)
        yield "fake-xfs", OTHER, Sample(10.0)


class Bench(unittest.TestCase):
    def run_rows(self, *wanted):
        run = Run({}, settings.SHARE.tiny)
        counters = {"page_faults": mock.Mock(side_effect=[1, 8]), "steal_seconds": mock.Mock(side_effect=[1.0, 1.5])}
        with (
            mock.patch("share_rows.row.Ground") as made, mock.patch("lib.runner.say"),
            mock.patch.multiple("lib.system", **counters), mock.patch("lib.memory.Ballast.fill"),
        ):  # fmt: skip
            ShareBench(Place(Path("/nowhere")), None, settings.SHARE.tiny).measure_all(wanted, run)
        return run, made.return_value

    def test_a_line_says_what_stands_beside_it_and_the_paper_has(self):
        run, ground = self.run_rows(FakeRow())
        self.assertIn(
            "| a line | 8.00 MB/s (8.00-8.00) | 10.0 MB/s (10.0-10.0), bare calls | 0.800x (0.800-0.800) | 0.8x | "
            "2.6 MB/s |  |  | 7, 0.50 s | `bench/share.py --only fake-xfs` |",
            report.markdown(run, share.FORMS["speed"]),
        )
        ground.close.assert_called_once()

    def test_the_file_system_of_a_row_that_fails_goes(self):
        run, ground = self.run_rows(FakeRow(fails=True))
        self.assertEqual(run.failed(), ["fake-xfs"])
        ground.close.assert_called_once()

    def test_every_line_of_the_table_has_all_columns(self):
        for part, form in share.FORMS.items():
            every = rows(part, settings.SHARE.full)
            run = Run({}, settings.SHARE.full, [(row, NotMeasured("failed", "why it did")) for row in every])
            common.assert_has_all_columns(self, report.markdown(run, form), 11)

    def test_a_side_that_did_nothing_is_infinitely_worse(self):
        result = Measured(BesideLine("key", "title", "MiB/s"))
        result.add(ONEFOLD, Sample(3.0))
        result.add(OTHER, Sample(0.0))
        self.assertEqual(result.ratio(ONEFOLD, OTHER).median, float("inf"))


class Document(unittest.TestCase):
    def test_the_committed_document_takes_both_tables_between_their_own_markers(self):
        common.assert_takes_tables(self, share.PAGE, *(form.begin for form in share.FORMS.values()))


if __name__ == "__main__":
    unittest.main()
