"""The rows about archives, without an archive to measure."""

import os
import random
import struct
import unittest
import xml.etree.ElementTree as xml
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import paths
import common
import images
from image_rows import bucket, charts, collection, gateway, index, paper, records, rows, stages, stored
from image_rows.dedup import DEDUPLICATING, Borg
from image_rows.images import missing_of, paths_of
from image_rows.line import COLUMNS, ImageLine, ratio, verdict
from image_rows.packs import ENTRY, FOOTER, DIGEST_BYTES, units_bytes
from image_rows.plain import PLAIN, root_of
from image_rows.sides import Onefold, Side, sides
from lib import report, settings, system
from lib.measure import Cost, Measured, NotMeasured, Sample, Series, Turn, Work
from lib.rows.beside import ONEFOLD
from lib.runner import Run
from lib.system import BenchError

EVERY_SIDE = (Onefold, *DEDUPLICATING, *PLAIN)


def measured(line, **samples):
    """Returns a Measured with so many samples of each side."""
    result = Measured(line)
    for side, values in samples.items():
        for value in values:
            result.add(side, Sample(value))
    return result


class Rows(unittest.TestCase):
    def test_names_of_rows_and_keys_of_lines_are_told_apart(self):
        for chosen in settings.IMAGES:
            common.assert_told_apart(self, rows(chosen))

    def test_bound_and_aim_are_in_order_and_a_ratio_names_what_stands_beside(self):
        for row in rows(settings.IMAGES.full):
            for line in row.lines:
                if line.bound is not None and line.aim is not None:
                    is_harder = line.aim >= line.bound if line.higher_is_better else line.aim <= line.bound
                    self.assertTrue(is_harder, line.key)
                if "x" in line.goals():
                    self.assertTrue(line.beside, line.key)

    def test_a_set_that_is_not_built_is_left_out_and_says_how_to_build_it(self):
        with mock.patch.dict(os.environ, {"ONEFOLD_IMAGES": str(paths.folder(self))}):
            why = missing_of("builds", settings.IMAGES.full)
        self.assertEqual(why, 'debian-12-base, debian-12-base-2 of the set not built: run `make corpus '
                              'SETS="debian-12-base debian-12-base-2"`')
        self.assertIsNone(missing_of("builds", settings.IMAGES.tiny))

    def test_the_image_that_is_captured_raw_is_no_part_of_its_set(self):
        names = {path.stem for path in paths_of("distros")}
        self.assertIn("debian-12-misaligned", names)
        self.assertNotIn("debian-13-btrfs", names)
        self.assertEqual([path.stem for path in paths_of("aligned")], ["debian-12-base", "debian-12-misaligned"])


class Goals(unittest.TestCase):
    SMALLER = ImageLine("a", "a", "MiB", higher_is_better=False, bound=0.85, aim=0.75, beside="smallest peer")
    FASTER = ImageLine("b", "b", "MiB/s", bound=1.0, aim=1.5, beside="fastest peer")
    ALONE = ImageLine("c", "c", "s", higher_is_better=False, bound=1.0, aim=0.2)

    def test_the_best_other_side_is_the_one_that_counts(self):
        result = measured(self.SMALLER, onefold=[80], restic=[100], borg=[160])
        self.assertEqual((ratio(result).median, verdict(result)), (0.8, "bound"))
        result = measured(self.FASTER, onefold=[300], restic=[100], casync=[200])
        self.assertEqual((ratio(result).median, verdict(result)), (1.5, "aim"))

    def test_ratios_are_those_of_each_round(self):
        result = measured(self.FASTER, onefold=[100, 30, 300], restic=[200, 20, 300])
        self.assertEqual((ratio(result).low, ratio(result).median, ratio(result).high), (0.5, 1.0, 1.5))

    def test_what_falls_short_is_missed_and_what_was_not_measured_passes_nothing(self):
        self.assertEqual(verdict(measured(self.SMALLER, onefold=[90], restic=[100])), "missed")
        self.assertEqual(verdict(measured(self.ALONE, onefold=[0.9])), "bound")
        self.assertEqual(verdict(measured(self.ALONE)), "not measured")
        # A peer alone, and Onefold alone where something should stand beside it.
        self.assertEqual(verdict(measured(self.FASTER, restic=[1])), "not measured")
        self.assertEqual(verdict(measured(self.FASTER, onefold=[1])), "not measured")
        self.assertEqual(verdict(measured(ImageLine("d", "d", "%"), onefold=[1])), "report")


class Table(unittest.TestCase):
    def run_of(self, *rows_measured):
        return Run({"when": "now"}, settings.IMAGES.tiny, list(rows_measured), {}, True)

    def test_all_lines_have_all_columns_and_sides_are_listed_best_first(self):
        row = stored.SetRow(settings.IMAGES.tiny, "derived", "fbs", "a set", (0.85, 0.75), is_equal=False, has_cpu=True)
        series = Series(row)
        for side, value in ((ONEFOLD, 2.0), ("restic", 3.0), ("borg", 4.0), ("zstd-1", 5.0)):
            series.add("derived", side, Sample(value))
        for key, side in (("derived-cpu-borg", "borg"), ("derived-cpu-zstd", "zstd-1")):
            series.add(key, ONEFOLD, Sample(1.0))
            series.add(key, side, Sample(2.0))
        index_row = index.IndexRow(settings.IMAGES.full)
        run = self.run_of((row, series), (index_row, NotMeasured("not measured", "no example")))
        text = report.markdown(run, images.FORM)
        common.assert_has_all_columns(self, text, len(COLUMNS) + 4)
        self.assertEqual(text.count("| not measured |  |  |"), len(index_row.lines))
        self.assertEqual(text.count("| not measured |  | `"), len(index_row.lines))
        lines = [line for line in images.all_sides(run).splitlines() if "bytes stored" in line]
        sides_shown = [line.split("|")[2].strip() for line in lines]
        self.assertEqual(sides_shown, ["`onefold`", "`restic`", "`borg`", "`zstd-1`"])

    def test_the_committed_document_takes_the_table(self):
        common.assert_takes_tables(self, images.PAGE, images.FORM.begin)


class Records(unittest.TestCase):
    """A record is written, and its rows stand in the table of the next run."""

    def run_of(self, *measured, facts=()):
        first = {"when": "monday", "command": "`a`", "load at the start": "0.1"}
        return Run(first | dict(facts), settings.IMAGES.tiny, list(measured), {}, True)

    def series(self, row, value):
        series = Series(row)
        for result in series.lines:
            result.add(ONEFOLD, Sample(value, Cost(2.0), Work.moved(1 << 30), {"bytes": 7}))
        series.turns[""] = [Turn(5, 0.5)]
        return series

    def record(self, run):
        path = paths.folder(self) / "images.json"
        report.write_json(run, path)
        return path

    def rows(self):
        return rows(settings.IMAGES.tiny)

    def test_rows_of_a_record_come_back_as_they_were_measured(self):
        row = self.rows()[0]
        series = self.series(row, 3.0)
        series.set_aside = self.series(row, 9.0)
        old = self.run_of((row, series))
        run = self.run_of(facts={"when": "tuesday"})
        records.keep(self.record(old), self.rows(), [], run)
        self.assertEqual([row.name for row, _ in run.measured], [row.name])
        self.assertEqual(report.series_document(run.measured[0][1]), report.series_document(series))
        self.assertIn("kept from monday, `a`, load 0.1", run.facts)

    def test_a_row_that_is_measured_anew_is_not_kept_and_the_table_has_its_order(self):
        first, second, *_ = self.rows()
        old = self.run_of((first, self.series(first, 1.0)), (second, NotMeasured("failed", "no room")))
        run = self.run_of()
        records.keep(self.record(old), self.rows(), [first], run)
        self.assertEqual([series for _, series in run.measured], [NotMeasured("failed", "no room")])
        run.measured.append((first, self.series(first, 2.0)))
        records.in_order(run, self.rows())
        self.assertEqual([row.name for row, _ in run.measured], [first.name, second.name])

    def test_what_was_kept_before_keeps_the_head_of_its_own_run(self):
        first, second, *_ = self.rows()
        monday = self.record(self.run_of((first, self.series(first, 1.0))))
        tuesday = self.run_of(facts={"when": "tuesday"})
        records.keep(monday, self.rows(), [second], tuesday)
        tuesday.measured.append((second, self.series(second, 2.0)))
        wednesday = self.run_of(facts={"when": "wednesday"})
        records.keep(self.record(tuesday), self.rows(), [], wednesday)
        kept = {name.split(",")[0]: value for name, value in wednesday.facts.items() if "kept" in name}
        self.assertEqual(kept, {"kept from monday": f"`{first.name}`", "kept from tuesday": f"`{second.name}`"})

    def test_a_row_with_other_lines_is_dropped_and_another_size_refused(self):
        first = self.rows()[0]
        path = self.record(self.run_of((first, self.series(first, 1.0))))
        path.write_text(path.read_text(encoding="utf-8").replace('"derived-cpu-borg"', '"gone"'), encoding="utf-8")
        run = self.run_of()
        records.keep(path, self.rows(), [], run)
        self.assertEqual(run.measured, [])
        with self.assertRaisesRegex(BenchError, "tiny"):
            records.keep(path, self.rows(), [], Run({}, settings.IMAGES.full))


class Charts(unittest.TestCase):
    def run_of_all(self):
        measured = []
        for row in rows(settings.IMAGES.full):
            series = Series(row)
            for result in series.lines:
                for number, side in enumerate((ONEFOLD, *sorted(set(row.sides) - {ONEFOLD}))):
                    result.add(side, Sample(40.0 + number))
            measured.append((row, series))
        return Run({}, settings.IMAGES.full, measured, {}, True)

    def test_each_chart_is_drawn_and_its_texts_lie_apart(self):
        folder, run = paths.folder(self), self.run_of_all()
        names = charts.write(run, folder)
        self.assertEqual(set(names), set(images.CHARTS))
        for name in names:
            common.assert_texts_lie_apart(self, xml.parse(folder / name).getroot(), name)
        self.assertIn("(at/archive-stages.svg)", images.markdown(run, names, "at"))

    def test_without_figures_there_is_no_chart(self):
        row = rows(settings.IMAGES.full)[0]
        run = Run({}, settings.IMAGES.full, [(row, NotMeasured("failed", "no"))], {}, True)
        self.assertEqual(charts.write(run, paths.folder(self)), [])


class Stages(unittest.TestCase):
    SAID = (
        "onefold \n\t 1 ZSTD_compressBlock\n\t 2 onefold_image::capture::batch::Reader::run\n\n"
        "onefold \n\t 1 copy_to_iter\n\t 2 <onefold_image::capture::unread::ReadDisk as Disk>::read_at\n\n"
        "onefold \n\t 1 copy_to_iter\n\t 2 <onefold_disk::raw::FileDisk>::read_at\n\t 3 onefold_guest::ext::Ext\n\n"
        "onefold \n\t 1 blake3_hash_many_avx512\n\t 2 onefold_image::archive::writer::Writer::add\n\n"
        "onefold \n\t 1 copy_from_iter\n\t 2 onefold_image::archive::writer::Writer::add\n\n"
        "onefold \n\t 1 memcmp\n\t 2 onefold_image::archive::tables::entry_at\n\n"
        "onefold \n\t 1 futex_wait\n\n"
    )

    def test_each_sample_belongs_to_one_stage(self):
        self.assertEqual(stages.counts(stages.stacks(self.SAID)), dict.fromkeys((*stages.STAGES, stages.OTHER), 1))

    def test_a_program_without_symbols_has_no_stages(self):
        with self.assertRaisesRegex(BenchError, "stripped"):
            stages.counts(stages.stacks("onefold \n\t 1 [unknown]\n\n"))


class Sides(unittest.TestCase):
    def test_sides_are_told_apart_and_say_their_settings(self):
        names = [side.name for side in EVERY_SIDE]
        self.assertEqual(len(set(names)), len(names))
        self.assertTrue(all(side.settings for side in EVERY_SIDE))

    def test_a_side_whose_program_is_missing_is_left_out(self):
        with mock.patch("image_rows.sides.shutil.which", side_effect=lambda name: None if name == "borg" else name):
            names = [side.name for side in sides(SimpleNamespace(onefold="o"), settings.IMAGES.full)]
        self.assertEqual(names[0], ONEFOLD)
        self.assertIn("restic-max", names)
        self.assertFalse([name for name in names if name.startswith("borg")])

    def test_quick_runs_have_defaults_only(self):
        with mock.patch("image_rows.sides.shutil.which", return_value="there"):
            names = {side.name for side in sides(SimpleNamespace(onefold="o"), settings.IMAGES.quick)}
        self.assertTrue({"restic", "borg", "borg-fixed", "zstd", "zstd-1"} <= names)
        self.assertFalse({"restic-max", "borg-zstd", "zstd-9-long", "casync"} & names)

    def test_a_full_run_has_defaults_only_where_that_is_asked_for(self):
        chosen = settings.IMAGES.full
        with mock.patch("image_rows.sides.shutil.which", return_value="there"):
            every, defaults = (
                {side.name for side in sides(SimpleNamespace(onefold="o"), replace(chosen, defaults_only=only))}
                for only in (False, True)
            )
        self.assertEqual(every - defaults, {side.name for side in EVERY_SIDE if not side.is_default})

    def test_words_of_scripts_are_quoted_and_failures_are_heard(self):
        class Copy(Side):
            store_script = "cp {image} {folder}/store/{name}"
            restore_script = "false | cat"

        folder = paths.folder(self)
        image = folder / "a disk's image"
        image.write_bytes(bytes(5000))
        side = Copy(SimpleNamespace(onefold=Path("/one fold")))
        side.create(folder / "work")
        side.store(folder / "work", image, "a $(name)")
        self.assertEqual(side.stored_bytes(folder / "work")[0], 5000)
        with self.assertRaises(BenchError):
            side.restore(folder / "work", image, "a", folder / "target")

    def test_a_restored_file_lies_below_the_target_folder_by_its_whole_path(self):
        side = Borg(SimpleNamespace(onefold="o"))
        self.assertEqual(side.restored_file(Path("/srv/vm/a.raw"), Path("/t")), Path("/t/srv/vm/a.raw"))


class Sets(unittest.TestCase):
    def measure(self, *failing):
        """Measures a set on two sides, of which some fail."""
        row = stored.SetRow(settings.IMAGES.tiny, "derived", "fbs", "a set", (0.85, 0.75), is_equal=False)
        took = SimpleNamespace(cpu_seconds=1.0, seconds=1.0)
        known = []
        for name in (ONEFOLD, "casync"):
            side = mock.Mock(stored_bytes=mock.Mock(return_value=(1 << 20, 1 << 20)))
            side.name = name
            side.store = mock.Mock(side_effect=BenchError("no") if name in failing else None, return_value=took)
            known.append(side)
        ground = mock.Mock(of=mock.Mock(return_value=[Path(__file__)]), sides=mock.Mock(return_value=known))
        ground.new_folder = lambda name: paths.folder(self) / name
        with mock.patch("image_rows.stored.shutil.rmtree"):
            return [side for _, side, _ in row.measure(ground, settings.IMAGES.tiny, 0)]

    def test_a_peer_that_cannot_store_an_image_is_left_out_and_onefold_never_is(self):
        self.assertEqual(self.measure(), [ONEFOLD, "casync"])
        self.assertEqual(self.measure("casync"), [ONEFOLD])
        with self.assertRaises(BenchError):
            self.measure(ONEFOLD)


class Packs(unittest.TestCase):
    def archive(self, version=1):
        folder = paths.folder(self)
        (folder / "packs" / "w").mkdir(parents=True)
        (folder / "manifests" / "w").mkdir(parents=True)
        unit, header = b"u" * 32, b"h" * 32
        table = ENTRY.pack(unit, 700, 900) + ENTRY.pack(header, 40, 60)
        units = bytes(64 + 740 + 32)
        footer = FOOTER.pack(len(table), len(units), 0, version, 0)
        (folder / "packs" / "w" / "1").write_bytes(units + table + footer + bytes(DIGEST_BYTES))
        (folder / "packs" / "w" / ".left").write_bytes(b"half")
        (folder / "manifests" / "w" / "1").write_bytes(b"before" + header + b"after")
        return folder

    def test_headers_of_chunks_are_told_from_units_by_the_manifests(self):
        self.assertEqual(units_bytes(self.archive()), 700)

    def test_another_layout_is_no_figure(self):
        with self.assertRaisesRegex(BenchError, "layout"):
            units_bytes(self.archive(version=2))
        self.assertEqual(FOOTER.size, struct.calcsize("<IIIHH"))


class Paper(unittest.TestCase):
    def test_finished_chunks_are_full_and_lose_nothing(self):
        units = [bytes([number]) * (300 << 10) for number in range(7)]
        chunks = list(paper.finished_chunks(units))
        self.assertEqual([len(chunk) >> 10 for chunk in chunks], [900, 900, 300])
        self.assertEqual(b"".join(chunks), b"".join(units))
        self.assertEqual(list(paper.finished_chunks([])), [])

    def test_units_lie_at_fixed_places_and_zeros_are_none(self):
        path = paths.folder(self) / "disk"
        with open(path, "wb") as file:
            file.truncate(10 * paper.UNIT_BYTES)
            file.seek(3 * paper.UNIT_BYTES + 5)
            file.write(b"a")
            file.seek(7 * paper.UNIT_BYTES - 1)
            file.write(b"bc")
        self.assertEqual(len(list(paper.compressed_units(path))), 3)

    def test_a_chunk_of_the_same_units_is_repeated_and_a_shifted_one_is_not(self):
        folder, noise = paths.folder(self), os.urandom(4 << 20)
        for name, content in (("one", noise), ("same", noise), ("shifted", b"x" * 512 + noise)):
            (folder / name).write_bytes(content)
        share, more = paper.repeated_chunks([folder / "one", folder / "same"])
        self.assertAlmostEqual(share, 0.5)
        self.assertEqual(more["repeated_bytes"] * 2, more["bytes"])
        self.assertEqual(paper.repeated_chunks([folder / "one", folder / "shifted"])[0], 0.0)


class Collections(unittest.TestCase):
    def test_images_share_with_ones_before_them_and_units_are_counted_once(self):
        dice = random.Random(1)
        several = [collection.units_of(number, 100, dice) for number in range(20)]
        self.assertEqual(collection.count(several), 20 * 100)
        self.assertEqual(sum(len(units) for ranges in several for units in ranges), 20 * 100 + 19 * 20)
        for number, (own, *others) in enumerate(several):
            self.assertTrue(all(max(units) < min(own) for units in others), number)
        # Of images that are removed, others need a part.
        self.assertGreater(collection.count(several[1:]), 19 * 100 - 1)

    def test_units_are_told_apart_and_none_is_zero(self):
        contents = {collection.content(unit) for unit in (0, 1, 255, 256, 10**7)}
        self.assertEqual((len(contents), {len(content) for content in contents}), (5, {4096}))
        self.assertNotIn(bytes(4096), contents)

    def test_a_program_without_a_collection_is_not_measured(self):
        row = collection.CollectionRow(settings.IMAGES.full)
        self.assertIn("gc", row.why_not(settings.IMAGES.full))
        self.assertIsNone(row.why_not(replace(settings.IMAGES.full, collects=True)))
        with mock.patch.object(system, "run", return_value=SimpleNamespace(text="Commands:\n  gc  Collect\n")):
            self.assertTrue(collection.collects("onefold"))
        with mock.patch.object(system, "run", return_value=SimpleNamespace(text="  check  all that gc left\n")):
            self.assertFalse(collection.collects("onefold"))


class Buckets(unittest.TestCase):
    LOG = (
        'debug 1 beast: 0x7f: 127.0.0.1 - - [t] "PUT /images HTTP/1.1" 200 0 - "curl/7.88.1" - latency=0.1s\n'
        'debug 1 beast: 0x7f: 127.0.0.1 - k [t] "GET /images/a/packs/1 HTTP/1.1" 206 9 - - bytes=0-8 latency=0.1s\n'
        'debug 1 beast: 0x7f: 127.0.0.1 - k [t] "GET /images/?list-type=2 HTTP/1.1" 200 9 - - - latency=0.1s\n'
        'debug 1 ====== starting new request "GET /nowhere HTTP/1.1" ======\n'
        'debug 1 beast: 0x7f: 127.0.0.1 - k [t] "DELETE /images/mark-7 HTTP/1.1" 204 0 - - - latency=0.1s\n'
        "debug 1 half a line"
    )

    def test_requests_are_counted_by_their_method_and_marks_are_not(self):
        self.assertEqual(gateway.requests_in(self.LOG), {"DELETE": 0, "GET": 2, "HEAD": 0, "PUT": 1})
        self.assertEqual(gateway.requests_in(""), {"DELETE": 0, "GET": 0, "HEAD": 0, "PUT": 0})

    def test_a_mark_ends_with_its_line_and_only_once_that_is_whole(self):
        log = self.LOG.encode()
        end = gateway.end_of_mark(log, "/images/mark-7")
        self.assertTrue(log[:end].endswith(b"latency=0.1s\n"))
        self.assertEqual(log[end:], b"debug 1 half a line")
        self.assertIsNone(gateway.end_of_mark(log, "/images/mark-8"))
        self.assertIsNone(gateway.end_of_mark(log[: end - 1], "/images/mark-7"))

    def test_requests_are_those_between_two_lengths_of_the_log(self):
        ceph = gateway.Gateway(paths.folder(self) / "work")
        log = ceph.home / "log" / "client.rgw.a.log"
        log.parent.mkdir(parents=True)
        log.write_text(self.LOG, encoding="ascii")
        first = self.LOG.index("\n") + 1
        self.assertEqual(ceph.requests_since(0, first)["PUT"], 1)
        self.assertEqual(ceph.requests_since(first, len(self.LOG)), {"DELETE": 0, "GET": 2, "HEAD": 0, "PUT": 0})

    def test_a_gateway_that_was_never_started_needs_no_stop(self):
        with mock.patch.object(system, "run") as run:
            gateway.Gateway(paths.folder(self) / "work").stop()
        run.assert_not_called()

    def test_each_turn_has_an_archive_of_its_own_and_no_settings_of_the_user(self):
        ceph = SimpleNamespace(environment={"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
        first, second = (bucket.BucketSide(SimpleNamespace(onefold="o"), ceph, number) for number in (0, 1))
        self.assertNotEqual(first.location, second.location)
        self.assertIn("unset AWS_PROFILE", first.environment)
        self.assertIn("export AWS_ENDPOINT_URL=http://127.0.0.1:1;", first.environment)
        for script in (first.create_script, first.store_script, first.restore_script):
            self.assertIn(f" {first.location}", script)

    def test_without_ceph_the_row_is_not_measured(self):
        with mock.patch("lib.rows.beside.shutil.which", return_value=None):
            self.assertIn("radosgw", bucket.BucketRow(settings.IMAGES.tiny).why_not(settings.IMAGES.tiny))


class Roots(unittest.TestCase):
    def test_the_largest_partition_is_the_root(self):
        table = '{"partitiontable": {"partitions": [{"start": 2048, "size": 10}, {"start": 8192, "size": 99}]}}'
        said = [SimpleNamespace(text=table), SimpleNamespace(text="xfs\n")]
        with mock.patch.object(system, "run", side_effect=said):
            root = root_of(Path("disk.raw"))
        self.assertEqual((root.start, root.length, root.kind), (8192 * 512, 99 * 512, "xfs"))


if __name__ == "__main__":
    unittest.main()
