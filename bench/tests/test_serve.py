"""The rows about served images, without a server to measure."""

import unittest
import xml.etree.ElementTree as xml
from types import SimpleNamespace

import paths
import common
import serve
from image_rows.line import COLUMNS
from lib import report, settings
from lib.measure import Sample, Series
from lib.rows.beside import ONEFOLD
from lib.runner import Run
from lib.system import BenchError
from serve_rows import charts, rows
from serve_rows.child import Child, wait_all
from serve_rows.images import CHANGED_PART, change, copy_files
from serve_rows.multicast import PAYLOAD_PART, LossRow, ManyLossRow, Stream, http_bytes, payload_sent, percent, rate_of
from serve_rows.network import COUNTERS, DATA_BYTES_MIN, lost
from serve_rows.peers import identity


class Rows(unittest.TestCase):
    def test_names_of_rows_and_keys_of_lines_are_told_apart(self):
        for chosen in settings.SERVE:
            common.assert_told_apart(self, rows(chosen))

    def test_bound_and_aim_are_in_order_and_a_ratio_names_what_stands_beside(self):
        for row in rows(settings.SERVE.full):
            for line in row.lines:
                if line.bound is not None and line.aim is not None:
                    is_harder = line.aim >= line.bound if line.higher_is_better else line.aim <= line.bound
                    self.assertTrue(is_harder, line.key)
                if line.beside:
                    self.assertGreater(len(row.sides), 1, line.key)

    def test_machines_that_lose_packets_begin_together(self):
        self.assertEqual(Stream("short", 16, 10**8).options(), ())
        together = Stream("short", 16, 10**8, 0.01, begins_together=True).options()
        self.assertEqual(together, ("--wait-for", "16", "--at-most", "30s"))

    def test_each_number_of_machines_that_lose_packets_is_measured_once(self):
        for chosen in settings.SERVE:
            counts = ManyLossRow.counts(chosen)
            self.assertTrue(counts and max(counts) < chosen.clients, counts)
        self.assertEqual(ManyLossRow.sides, LossRow.sides)

    def test_the_committed_document_takes_the_table(self):
        common.assert_takes_tables(self, serve.PAGE, serve.FORM.begin)


class Table(unittest.TestCase):
    def run_of_all(self, chosen):
        measured = []
        for row in rows(chosen):
            series = Series(row)
            for result in series.lines:
                for number, side in enumerate((ONEFOLD, *sorted(set(row.sides) - {ONEFOLD}))):
                    result.add(side, Sample(40.0 + number))
            measured.append((row, series))
        return Run({"when": "now"}, chosen, measured, {}, True)

    def test_all_lines_have_all_columns(self):
        text = report.markdown(self.run_of_all(settings.SERVE.full), serve.FORM)
        common.assert_has_all_columns(self, text, len(COLUMNS) + 4)

    def test_each_chart_is_drawn_and_its_texts_lie_apart(self):
        folder, run = paths.folder(self), self.run_of_all(settings.SERVE.full)
        names = charts.write(run, folder)
        self.assertEqual(set(names), set(serve.CHARTS))
        for name in names:
            common.assert_texts_lie_apart(self, xml.parse(folder / name).getroot(), name)
        self.assertIn("figures/serve-loss.svg", serve.markdown(run, names, "figures"))

    def test_a_chart_without_figures_is_left_out(self):
        run = Run({}, settings.SERVE.tiny, [], {}, True)
        self.assertEqual(charts.write(run, paths.folder(self)), [])


class Content(unittest.TestCase):
    """The image and its later version."""

    def test_the_files_have_so_many_bytes_and_about_a_part_of_them_changes(self):
        length = 1 << 20
        files = copy_files(paths.folder(self) / "tree", length)
        before = [path.read_bytes() for path in files]
        self.assertTrue(0.9 * length < sum(map(len, before)) <= length)
        change(files, length // CHANGED_PART)
        after = [path.read_bytes() for path in files]
        changed = [content for content, other in zip(before, after) if content != other]
        self.assertTrue(length // CHANGED_PART <= sum(map(len, changed)) < length // 4)
        self.assertEqual([len(content) for content in before], [len(content) for content in after])


class Counts(unittest.TestCase):
    """What is counted of packets."""

    def test_the_content_that_was_sent_is_the_same_whether_the_kernel_joins_packets_or_not(self):
        for packets, total in ((64, 64 * 1500), (1, 28 + 64 * 1472)):
            network = SimpleNamespace(sent_data=lambda seen=(packets, total): seen)
            self.assertAlmostEqual(payload_sent(network, PAYLOAD_PART), 64 * 1428)

    def test_chunks_over_http_count_as_sent(self):
        installed = SimpleNamespace(told={"multicast": {"chunks": 30, "http_chunks": 10}})
        self.assertEqual(http_bytes(installed, 400), 100)

    def test_lost_packets_are_those_of_groups_after_they_were_counted(self):
        self.assertEqual(lost(0.01), "ip daddr 224.0.0.0/4 numgen random mod 10000 < 100")
        self.assertIn("hook prerouting priority -300", COUNTERS)
        self.assertIn(f"ip length >= {DATA_BYTES_MIN} counter name data", COUNTERS)

    def test_figures_are_written_as_programs_take_them(self):
        self.assertEqual([percent(loss) for loss in (0.0, 0.01, 0.05)], ["0", "1", "5"])
        self.assertEqual(rate_of(1_000_000_000), "118750000")
        self.assertEqual(identity(2), "0xC0000202")


class Children(unittest.TestCase):
    """Processes beside each other."""

    def test_each_has_its_own_time_and_words(self):
        slow, fast = wait_all([Child("sh", "-c", "sleep 0.3; echo slow"), Child("echo", "fast")])
        self.assertEqual((slow.out, fast.out), ("slow\n", "fast\n"))
        self.assertTrue(fast.seconds < 0.3 <= slow.seconds)

    def test_one_that_fails_or_hangs_ends_the_others(self):
        other = Child("sleep", "100")
        with self.assertRaisesRegex(BenchError, "did not end within 0.2 s"):
            wait_all([other, Child("true")], seconds=0.2)
        self.assertIsNotNone(other.process.returncode)
        other = Child("sleep", "100")
        with self.assertRaisesRegex(BenchError, "failed with 3: no luck"):
            wait_all([other, Child("sh", "-c", "echo no luck >&2; exit 3")])
        self.assertIsNotNone(other.process.returncode)

    def test_what_is_said_so_far_can_be_read_while_it_runs(self):
        child = Child("sh", "-c", "echo one >&2; sleep 0.2; echo two >&2")
        while child.said() != "one\n":
            self.assertFalse(child.poll())
        self.assertEqual(wait_all([child])[0].err, "one\ntwo")


if __name__ == "__main__":
    unittest.main()
