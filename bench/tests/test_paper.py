"""The paper's figures, our tables and charts beside them, and the images that are made where there are no real ones."""

import re
import unittest
import xml.etree.ElementTree as xml

import paths  # it makes the next imports possible
import common
import paper  # noqa: I001
from lib import settings
from lib.data import CHUNK_BYTES
from lib.measure import Spread
from lib.system import BenchError
from paper_figures import fetch, figures, images, published, results, svg, tables
from paper_figures.variants import VARIANTS

MIB = 1 << 20


def measured(rounds=3):
    """Returns a run in which every value is there, and those of `all` are twice ext4's."""
    titles = {variant.key: variant.title for variant in VARIANTS} | {results.PLAIN: "ext4"}
    run = results.Results({"when": "then"}, settings.PAPER.tiny, titles, images=["one.raw", "a-name-" * 9 + ".raw"])
    series = [results.WRITE, results.READ, results.DUPLICATE, results.RECOVERY, results.RECOVERED, results.INSERT]
    series += [name(number) for number in range(3) for name in (results.image_series, results.fetch_series)]
    for name in series:
        for key in titles:
            for round_no in range(rounds):
                run.add(name, key, (100.0 + round_no) * (2 if key == "all" else 1))
    return run


class Published(unittest.TestCase):
    def test_throughputs_that_follow_from_the_text_fit_its_other_figures(self):
        # Each is told in MB/s and in per cent (section 4.1, experiment A1).
        write = {key: figure.value for key, figure in published.WRITE.items()}
        self.assertAlmostEqual(13.8 / write["SJ"], 0.18, delta=0.005)
        self.assertAlmostEqual(3.7 / write[published.EXT3], 0.038, delta=0.001)
        self.assertEqual(min(write, key=write.get), "S")

    def test_a_multiple_of_ext3_is_told_only_where_the_text_has_both(self):
        self.assertAlmostEqual(published.of_ext3(published.WRITE, "all"), 0.9615, delta=0.001)
        self.assertEqual(published.of_ext3(published.READ, "J"), 1.0)
        self.assertIsNone(published.of_ext3(published.DUPLICATE, "S"))
        self.assertIsNone(published.of_ext3(published.WRITE, "defaults"))


class Switches(unittest.TestCase):
    def test_the_variants_are_those_of_table_1(self):
        on = {v.key: (v.stores == "in-groups", v.prefetch != "never", v.journal == "on") for v in VARIANTS}
        self.assertEqual(on["J"], (False, False, True))
        self.assertEqual(on["S"], (True, False, False))
        self.assertEqual(on["SJ"], (True, False, True))
        self.assertEqual(on["all"], (True, True, True))

    def test_the_filter_has_the_papers_keys_except_where_the_pool_picks_them(self):
        words = {variant.key: " ".join(variant.mount_words()) for variant in VARIANTS}
        self.assertIn("--filter-index-bits 19 --filter-tag-bits 24", words["all"])
        self.assertNotIn("--filter", words["defaults"])


class Tables(unittest.TestCase):
    def test_a_variant_is_told_with_its_multiple_of_ext4_and_with_the_papers(self):
        text = tables.markdown(measured())
        line = "| LiveDFS-all | 202 MB/s (200-204) | 2.00x (2.00-2.00) | 92.4 MB/s (13.8 above SJ) | 0.962x |"
        self.assertIn(line, text)
        self.assertIn("| 14.94 s, mean of 10 runs of fsck |", text)
        self.assertIn("- when: then", text)

    def test_without_a_journal_nothing_is_said_of_recovery(self):
        self.assertIn("| LiveDFS-S | no journal, so no promise |  |  |", tables.markdown(measured()))

    def test_every_line_of_a_table_has_its_columns(self):
        parts = tables.markdown(measured()).split("### ")[1:]
        self.assertEqual(len(parts), 6)
        for part in parts:
            common.assert_has_all_columns(self, part)

    def test_what_was_not_measured_has_no_table(self):
        run = measured()
        del run.values[results.RECOVERY]
        text = tables.markdown(run)
        self.assertEqual(text.count("### "), 5)
        self.assertNotIn("A4", text)

    def test_a_ratio_needs_the_same_rounds_of_both(self):
        run = measured()
        run.values[results.WRITE]["all"].pop()
        self.assertIsNone(run.ratio(results.WRITE, "all"))
        self.assertEqual(run.ratio(results.READ, "all").median, 2.0)

    def test_only_charts_that_were_written_are_linked(self):
        text = tables.markdown(measured(), ["figure-7.svg"])
        self.assertEqual(re.findall(r"\((figures/[^)]*)\)", text), ["figures/figure-7.svg"])

    def test_the_committed_document_can_be_updated(self):
        common.assert_takes_tables(self, paper.PAGE, tables.BEGIN)

    def test_an_update_writes_the_charts_that_the_document_links(self):
        def show(arguments):
            paper.show(arguments, measured())

        links = common.assert_update_writes_linked_charts(self, show, tables.BEGIN)
        self.assertEqual(len(links), 6)


class Charts(unittest.TestCase):
    def setUp(self):
        self.folder = paths.folder(self)

    def test_each_figure_is_a_well_formed_file(self):
        names = figures.write(measured(), self.folder)
        self.assertEqual(len(names), 6)
        for name in names:
            root = xml.parse(self.folder / name).getroot()
            self.assertIn("prefers-color-scheme: dark", (self.folder / name).read_text(encoding="utf-8"))
            self.assertGreater(len(root.findall(common.TEXT)), 6, name)

    def test_what_was_not_measured_has_no_chart(self):
        self.assertEqual(figures.write(measured(rounds=0), self.folder), [])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_no_text_lies_on_another_or_leaves_the_chart(self):
        for name in figures.write(measured(), self.folder):
            common.assert_texts_lie_apart(self, xml.parse(self.folder / name).getroot(), name)

    def test_bars_and_whiskers_are_as_long_as_their_values(self):
        panel = svg.BarPanel("title", "s", ["here"], [("a", [svg.Bar(Spread(5, 2.5, 10))])])
        text = svg.document([panel])
        plot = svg.PLOT_RIGHT - svg.PLOT_LEFT
        self.assertIn(f'width="{plot / 2:.1f}"', text)
        self.assertIn(f"M{svg.PLOT_LEFT + plot / 4:.1f} ", text)
        self.assertIn(f"H{svg.PLOT_RIGHT:.1f}M", text)

    def test_an_axis_holds_the_highest_value_and_ends_at_a_round_number(self):
        for highest, end in ((0, 1), (0.7, 0.75), (1, 1), (1.01, 1.25), (4.9, 5), (1001, 1250)):
            self.assertAlmostEqual(svg.axis_end(highest), end)

    def test_names_are_escaped(self):
        panel = svg.BarPanel("title", "s", ["here"], [("<&>", [svg.Bar(Spread(1, 1, 1))])])
        self.assertIn("&lt;&amp;&gt;", svg.document([panel]))


class Images(unittest.TestCase):
    def setUp(self):
        self.folder = paths.folder(self)

    def blocks(self, path):
        data = path.read_bytes()
        return {data[at : at + 4096] for at in range(0, len(data), 4096)} - {bytes(4096)}

    def test_made_images_share_half_of_what_is_not_zero(self):
        one, other = (self.blocks(path) for path in images.make(self.folder, 16 * MIB, 2))
        self.assertEqual(len(one), 12 * MIB // 4096)
        self.assertEqual(len(one & other) * 2, len(one))

    def test_the_same_images_are_made_again(self):
        first = images.make(self.folder, 2 * CHUNK_BYTES, 2)[1].read_bytes()
        again = self.folder / "again"
        again.mkdir()
        self.assertEqual(images.make(again, 2 * CHUNK_BYTES, 2)[1].read_bytes(), first)

    def test_images_of_the_cache_are_taken_where_enough_of_them_fit(self):
        paths_made = images.make(self.folder, 4 * CHUNK_BYTES, 3)
        self.assertEqual(images.chosen([], self.folder, 64 * MIB, 2), paths_made[:2])
        self.assertEqual(images.chosen([], self.folder, 64 * MIB, 4), [])
        self.assertEqual(images.chosen([], self.folder, 8 * MIB, 3), [])

    def test_a_named_image_must_be_there_and_fit(self):
        (path,) = images.make(self.folder, 4 * CHUNK_BYTES, 1)
        self.assertEqual(images.chosen([path], self.folder, 64 * MIB, 4), [path])
        for named, device_bytes in (([self.folder / "none"], 64 * MIB), ([path], MIB)):
            with self.assertRaises(BenchError):
                images.chosen(named, self.folder, device_bytes, 4)

    def test_a_fetch_tells_how_much_it_read(self):
        made = images.make(self.folder, 3 * CHUNK_BYTES, 2)
        self.assertEqual(fetch.fetch([str(path) for path in made])["bytes"], 6 * CHUNK_BYTES)

    def test_files_and_images_fit_on_the_disk_of_every_size(self):
        for chosen in settings.PAPER:
            room = chosen.device_bytes * images.DEVICE_PART_MAX
            self.assertLess(2 * chosen.file_bytes, room, chosen.mode)
            self.assertLess(chosen.crash_bytes, room, chosen.mode)
            stored = chosen.synthetic_bytes * (images.SHARED_CHUNKS + images.OWN_CHUNKS) // images.CHUNKS_OF_PATTERN
            self.assertLess(chosen.image_count * stored, room, chosen.mode)


if __name__ == "__main__":
    unittest.main()
