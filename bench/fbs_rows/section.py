"""What an experiment comes to: a section of the document with a table, notes, charts, and data for programs."""

from dataclasses import dataclass, field

from lib.report import table


@dataclass
class Section:
    """One section. Cells of its table are texts; `charts` are panels by the name of the file that shows them."""

    title: str
    head: tuple
    rows: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    charts: dict = field(default_factory=dict)
    # For the JSON file.
    data: dict = field(default_factory=dict)

    def markdown(self, linked=(), folder="figures"):
        """Returns the lines of the section; of its charts, those are shown that were written."""
        lines = ["", f"### {self.title}", ""]
        for name in self.charts:
            if name in linked:
                lines += [f"![{self.title}]({folder}/{name})", ""]
        lines += table(self.head, self.rows)
        if self.notes:
            lines += ["", *self.notes]
        return lines
