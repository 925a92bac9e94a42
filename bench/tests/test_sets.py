"""How the analyses of the corpus's sets are shown."""

import unittest
from xml.etree import ElementTree

import paths  # noqa: F401
import common
import sets

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def block_size(size, saved):
    return {
        "block_bytes": size,
        "nonzero_bytes": GIB,
        "saved_bytes": saved,
        "linked_clone_bytes": GIB * 3 // 4,
        "repeats": [{"times": 1, "blocks": 60}, {"times": 2, "blocks": 90}, {"times": 4, "blocks": 100}],
        "repeats_max": 3,
    }


ANALYSIS = {
    "images": [{}, {}],
    "block_sizes": [block_size(size, GIB // 2 if size == 4 * KIB else GIB // 4) for size in sets.SIZES_SHOWN],
    "shifts": [{"block_sizes": [block_size(4 * KIB, part * GIB // 100)]} for part in (45, 48)],
    "realignment": {"nonzero_bytes": GIB, "distinct_bytes": GIB // 4},
    "growth": [
        {"name": "cache/one.raw", "nonzero_bytes": GIB // 2, "distinct_bytes": GIB // 2},
        {"name": "cache/two.raw", "nonzero_bytes": GIB, "distinct_bytes": GIB // 2},
    ],
    "groups": [
        {"name": "nobody", "images": 0, "nonzero_bytes": 0, "distinct_bytes": 0},
        {"name": "all", "images": 2, "nonzero_bytes": GIB, "distinct_bytes": GIB // 2},
    ],
}


def cells(text, beginning):
    line = next(line for line in text.splitlines() if line.startswith(beginning))
    return [cell.strip() for cell in line.strip("|").split("|")]


class Tables(unittest.TestCase):
    def test_savings_stand_under_their_block_size_and_beside_the_papers(self):
        text = sets.savings({"vdi": ANALYSIS})
        head, ours = cells(text, "| images"), cells(text, "| `vdi`")
        shown = dict(zip(head, ours))
        self.assertEqual((shown["not zero"], shown["4 KiB"], shown["8 KiB"], shown["1 MiB"]),
                         ("1.00 GiB", "50.0 %", "25.0 %", "25.0 %"))
        self.assertEqual(shown["linked clones"], "25.0 %")
        self.assertEqual(shown["shifted by 512 B to 3.5 KiB"], "45.0 to 48.0 %")
        self.assertEqual(shown["partitions realigned"], "75.0 %")
        paper = dict(zip(head, cells(text, "| DeDe")))
        self.assertEqual((paper["4 KiB"], paper["1 MiB"], paper["16 KiB"]), ("about 80 %", "about 35 %", ""))
        common.assert_has_all_columns(self, text)

    def test_the_committed_document_takes_the_tables(self):
        common.assert_takes_tables(self, sets.PAGE, sets.BEGIN)

    def test_repeats_beyond_the_last_step_are_all(self):
        text = sets.repeats({"vdi": ANALYSIS})
        self.assertEqual(cells(text, "| `vdi`"), ["`vdi`", "60.0 %", "90.0 %", "100.0 %", "100.0 %", "100.0 %", "100.0 %", "3"])

    def test_growth_and_groups_count_what_is_saved(self):
        self.assertEqual(cells(sets.growth({"vdi": ANALYSIS}), "| `vdi` | two"), ["`vdi`", "two", "1.00 GiB", "0.50 GiB", "50.0 %"])
        text = sets.groups({"vdi": ANALYSIS})
        self.assertEqual(cells(text, "| `vdi`"), ["`vdi`", "all", "2", "512 MiB", "256 MiB", "50.0 %"])
        self.assertNotIn("nobody", text)

    def test_the_chart_shows_a_set_before_and_after_with_the_percentage_of_the_table(self):
        picture = sets.chart({"vdi": ANALYSIS, "new-set": ANALYSIS})
        ElementTree.fromstring(picture)
        for words in ("desktop and 5 clones", "new-set", ">1.00<", ">0.500 (50.0 % saved)<"):
            self.assertIn(words, picture)


if __name__ == "__main__":
    unittest.main()
