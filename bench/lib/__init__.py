"""The parts of the benchmarks; `run.py` beside this folder puts them together."""
