"""Every hand-written mutant."""

from mutants.catalog import (
    access,
    agent,
    backfilling,
    changefeeds,
    clients,
    dispatching,
    indexing,
    lakes,
    log_backup,
    manifests,
    matching,
    meta,
    raw,
    schema,
    serving,
    slices,
    ticks,
)
from mutants.mutant import REGISTERED

_MODULES = {
    one.__name__
    for one in (
        access,
        agent,
        backfilling,
        changefeeds,
        clients,
        dispatching,
        indexing,
        lakes,
        log_backup,
        manifests,
        matching,
        meta,
        raw,
        schema,
        serving,
        slices,
        ticks,
    )
}

MUTANTS = tuple(mutant for mutant in REGISTERED if mutant.make.__module__ in _MODULES)
