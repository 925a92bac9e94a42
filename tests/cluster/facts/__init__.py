"""What Onefold relies on, or must not rely on, on OCFS2 with several hosts: each fact is tried and what was seen is told.

They are tried in the order of the modules here.
"""

from . import locks, sharing, maps, leases, names, deaths  # Each adds its facts.
from .trial import FACTS, Trial
