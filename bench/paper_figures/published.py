"""The paper's own figures, as far as its text gives them: LiveDFS (Middleware 2011), section 4.

The bars of its figures bear no numbers. What its text tells are differences, and from those the throughputs of Figure 7
follow: LiveDFS-SJ is 34.6 MB/s or 78.6 % above LiveDFS-S, so LiveDFS-S is 44.0; every other variant is a stated
difference away from another. (The text gives LiveDFS-SJ's lead on LiveDFS-J as 16.1 MB/s "or 37 %". The two do not fit
each other beside the rest; 16.1 is 37 % of LiveDFS-S. The difference is what is used here.)
"""

from dataclasses import dataclass

EXT3 = "ext3"


@dataclass(frozen=True)
class Published:
    """One figure of the paper: a number where its text has one, and the words that say where it is from."""

    value: float | None
    words: str


S_WRITE = 34.6 / 0.786
SJ_WRITE = S_WRITE + 34.6
J_WRITE = SJ_WRITE - 16.1
ALL_WRITE = SJ_WRITE + 13.8
EXT3_WRITE = ALL_WRITE + 3.7
DUPLICATE_GAIN = 120.0

# Experiment A1, Figure 7, MB/s.
WRITE = {
    "J": Published(J_WRITE, "16.1 below SJ"),
    "S": Published(S_WRITE, "34.6 are 78.6 % of it"),
    "SJ": Published(SJ_WRITE, "34.6 above S"),
    "all": Published(ALL_WRITE, "13.8 above SJ"),
    EXT3: Published(EXT3_WRITE, "3.7 above all"),
}
# Experiment A2, Figure 8: "almost the same throughput as Ext3FS", without a number.
READ = {name: Published(None, "almost Ext3FS's") for name in ("J", "S", "SJ", "all")}
# Experiment A3, Figure 9, MB/s: around 120 above Ext3FS, whose writes of duplicates are like any others of its.
DUPLICATE = {
    "J": Published(EXT3_WRITE + DUPLICATE_GAIN, "about 120 above Ext3FS"),
    "S": Published(None, "less than the others"),
    "SJ": Published(EXT3_WRITE + DUPLICATE_GAIN, "about 120 above Ext3FS"),
    "all": Published(EXT3_WRITE + DUPLICATE_GAIN, "about 120 above Ext3FS"),
    EXT3: Published(EXT3_WRITE, "as in Figure 7"),
}
# Experiment A4, seconds; the paper does not say of which variant, so it is the one with everything.
RECOVERY = {
    "all": Published(14.94, "14.94 s, mean of 10 runs of fsck"),
    EXT3: Published(None, "under 1 s"),
}
# Experiment B2, Figure 11: no number in the text.
INSERT = {
    "all": Published(None, "the least of all variants, less than Ext3FS"),
    **{name: Published(None, "a little more than all") for name in ("J", "S", "SJ")},
}
# Experiment B3, Figure 12: a start takes around 30 % longer than on Ext3FS, however many at once; the network included.
FETCH_OF_EXT3 = Published(1.30, "about 30 % longer than Ext3FS, network included")


def of_ext3(figures, name):
    """Returns a throughput as a multiple of Ext3FS's; None where the text does not tell both."""
    if figures is READ and name in READ:
        return 1.0
    value, ext3 = figures.get(name), figures.get(EXT3)
    if value is None or ext3 is None or value.value is None or ext3.value is None:
        return None
    return value.value / ext3.value
