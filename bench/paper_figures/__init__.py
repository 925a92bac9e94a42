"""The LiveDFS paper's experiments, repeated with Onefold's switches; `paper.py` beside this folder puts them together."""
