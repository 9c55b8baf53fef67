"""Every mutant, in the order of the data's journey."""

from mutants.catalog.commits import MUTANTS as COMMITS
from mutants.catalog.matching import MUTANTS as MATCHING
from mutants.catalog.routing import MUTANTS as ROUTING
from mutants.catalog.serving import MUTANTS as SERVING
from mutants.catalog.slices import MUTANTS as SLICES
from mutants.catalog.ticks import MUTANTS as TICKS

MUTANTS = (*ROUTING, *SLICES, *MATCHING, *TICKS, *COMMITS, *SERVING)
