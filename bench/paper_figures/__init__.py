"""The LiveDFS paper's experiments with Onefold's switches; `paper.py` beside this folder puts them together."""
