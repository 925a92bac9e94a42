"""The paper's own figures: File-level Block Sharing, tables 1 to 5, figures 5 and 6, list 1."""

# Table 2: seconds for 42 disks one after the other, of five runs, and what the paper derives from them.
MACHINES = 42
TOTAL_SECONDS, TOTAL_DEVIATION, RUNS = 677.09, 8.14, 5
PRINTED_SECONDS_EACH, PRINTED_MB_PER_SECOND = 15.79, 27.74
# What was installed on each machine.
INSTALLED_MB = 438

# List 1: /bin/gzip.
LISTED_BYTES, LISTED_DATA_BLOCKS, LISTED_MAP_BLOCKS = 53_488, 14, 1

# Figure 5: p of the t-tests.
P_READ, P_WRITE = 0.92, 0.82

# Section 5.3: lengths that stay in an MFT record, runs of a record, and the part of a volume kept for records.
RESIDENT_BYTES = (700, 800)
RUNS_OF_RECORD = 30
MFT_ZONE_PART = 0.125

# Section 5.2: files with more blocks than this are large; 'much less than 1 %' of files were.
LARGE_BLOCKS = 1036
LARGE_PART_MAX = 0.01


def seconds_each():
    """Returns what 677.09 s for 42 machines come to; the paper prints 15.79."""
    return TOTAL_SECONDS / MACHINES


def mb_per_second():
    """Returns the rate that follows from the same; the paper prints 27.74."""
    return INSTALLED_MB * MACHINES / TOTAL_SECONDS
