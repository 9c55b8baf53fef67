"""Every mutant, in the order of the data's journey."""

from mutants.catalog.matching import MUTANTS as MATCHING
from mutants.catalog.slices import MUTANTS as SLICES

MUTANTS = (*SLICES, *MATCHING)
