"""Makes the modules of the benchmarks importable: `python3 -m unittest discover -s bench/tests`."""

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
CLIENT = BENCH / "lib" / "client.py"

sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))
