"""What the tests of several tables claim in the same words."""

import contextlib
import io
import re
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path
from types import SimpleNamespace

import paths  # noqa: F401  it makes the next imports possible
from lib import launch, report
from paper_figures import svg

TEXT = "{http://www.w3.org/2000/svg}text"


def assert_told_apart(test, rows):
    """Claims that no two rows have the same name, and no two of their lines the same key."""
    names = [row.name for row in rows]
    keys = [line.key for row in rows for line in row.lines]
    test.assertEqual((len(set(names)), len(set(keys))), (len(names), len(keys)))


def assert_has_all_columns(test, text, separators=None):
    """Claims that all lines of a table have as many columns, and so many separators where that is told."""
    counts = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    test.assertEqual(len(counts), 1, text)
    if separators is not None:
        test.assertEqual(counts, {separators})


def assert_takes_tables(test, page, *begins):
    """Claims that a page of benchmarks takes tables, each between its own markers."""
    committed = launch.PAGES / page
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "document.md"
        copy.write_text(committed.read_text(encoding="utf-8"), encoding="utf-8")
        for number, begin in enumerate(begins):
            report.update(copy, f"table {number}", begin)
        text = copy.read_text(encoding="utf-8")
    for number, begin in enumerate(begins):
        test.assertIn(f"{begin}\ntable {number}\n{report.END}\n", text)


def assert_update_writes_linked_charts(test, show, begin):
    """Claims that `--update` replaces what stands between the markers, and writes the charts that are linked there.

    `show` is given the arguments of a run. Returns the links.
    """
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "document.md"
        document.write_text(f"head\n{begin}\nprevious\n{report.END}\ntail\n", encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            show(SimpleNamespace(update=document, charts=None))
        text = document.read_text(encoding="utf-8")
        links = re.findall(r"\((figures/[^)]*)\)", text)
        test.assertTrue(all((Path(folder) / link).is_file() for link in links))
    test.assertIn(printed.getvalue().strip(), text)
    test.assertTrue(text.startswith("head\n") and text.endswith("tail\n") and "previous" not in text)
    return links


def assert_texts_lie_apart(test, root, name):
    """Claims that no text of a chart lies on another one or leaves the chart."""
    height = float(root.get("height"))
    boxes = [box(text) for text in root.findall(TEXT)]
    for index, one in enumerate(boxes):
        test.assertTrue(0 <= one[0] and one[2] <= svg.WIDTH and 0 <= one[1] and one[3] <= height, (name, one))
        for other in boxes[:index]:
            test.assertFalse(overlap(one, other), (name, one, other))


def root_of(panels):
    """Returns the chart of some panels."""
    return xml.fromstring(svg.document(panels))


def box(text):
    """Returns left, top, right and bottom of a text, a little wider than common fonts make it."""
    length = len(text.text) * (9.5 if text.get("class") == "title" else 7.2)
    x, y = float(text.get("x")), float(text.get("y"))
    left = x - {"start": 0, "middle": length / 2, "end": length}[text.get("text-anchor")]
    return left, y - 12, left + length, y + 3


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
