"""The experiments of the FBS paper, in its order; `fbs.py` beside this folder puts them together."""

from .bonnie import BonnieExperiment
from .cas import OnlineExperiment, Table1Experiment
from .extents import CallsExperiment
from .hashing import HashingExperiment
from .list1 import ListExperiment
from .metadata import Table3Experiment, Table4Experiment
from .ntfs import NtfsExperiment
from .offline import OfflineExperiment

EXPERIMENTS = (
    ListExperiment(), Table3Experiment(), Table4Experiment(), CallsExperiment(), NtfsExperiment(),
    HashingExperiment(),
    OfflineExperiment(), Table1Experiment(), OnlineExperiment(), BonnieExperiment(),
)  # fmt: skip
