"""The experiments of the FBS paper, in its order; `fbs.py` beside this folder puts them together."""

from .extents import CallsExperiment
from .list1 import ListExperiment
from .metadata import Table3Experiment, Table4Experiment
from .ntfs import NtfsExperiment

EXPERIMENTS = (
    ListExperiment(), Table3Experiment(), Table4Experiment(), CallsExperiment(), NtfsExperiment(),
)  # fmt: skip
