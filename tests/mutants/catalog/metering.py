"""What tenants have used: counted once, whoever dies, and by whom it is told (docs/adr/0014)."""

# ruff: noqa: E501 - quoted code keeps its length
from mutants.mutant import Mutant

INTAKE = "services/sorter/tistream_sorter/intake.py"
BOOK = "services/meta/tistream_meta/usage_book.py"
METER = "shared/tistream/service/usage.py"
MEASURED = "shared/tistream/storage/measured.py"

MUTANTS = (
    Mutant(
        name="metered-again-after-a-merge",
        invariants=(20,),
        breaks="a file that comes again to the heir of several tasks is billed again",
        file=INTAKE,
        old="    return 0 if before is not None and ref.ts <= before else ref.size\n",
        new="    return ref.size\n",
        catchers=("tests/unit/sorter/test_intake.py::test_what_a_merge_takes_back_counts_once",),
    ),
    Mutant(
        name="metered-by-every-task",
        invariants=(20,),
        breaks="each task of a tenant counts the files that it is sent",
        file=INTAKE,
        old="    return not identity.span.start\n",
        new="    return True\n",
        catchers=("tests/unit/sorter/test_intake.py::test_only_the_task_with_the_first_keys_counts",),
    ),
    Mutant(
        name="metered-by-the-newest-report",
        invariants=(20,),
        breaks="of a total the newest report counts, not the greatest: a late one takes back what was told",
        file=BOOK,
        old="        raised = {name: case((table.c[name] < told[name], told[name]), else_=table.c[name]) for name in tables.COUNTED}\n",
        new="        raised = {name: told[name] for name in tables.COUNTED}\n",
        catchers=("tests/unit/meta/test_usage_book.py::test_repeats_and_late_reports_change_nothing",),
    ),
    Mutant(
        name="metered-by-older-manifests",
        invariants=(20,),
        breaks="a late report of an older manifest replaces what a newer one has told",
        file=BOOK,
        old='    older = and_(table.c.manifest <= told["manifest"], *(table.c[name] == told[name] for name in _TASK))\n',
        new="    older = and_(*(table.c[name] == told[name] for name in _TASK))\n",
        catchers=("tests/unit/meta/test_usage_book.py::test_of_what_is_stored_the_newest_manifest_tells",),
    ),
    Mutant(
        name="metered-once-for-each-heir",
        invariants=(20,),
        breaks="objects of a sealed task are billed once for each heir",
        file=BOOK,
        old='    most = func.max(table.c.bytes).label("most")\n',
        new='    most = func.sum(table.c.bytes).label("most")\n',
        catchers=("tests/unit/meta/test_usage_book.py::test_what_heirs_share_is_stored_once",),
    ),
    Mutant(
        name="metered-and-forgotten-untaken",
        invariants=(20,),
        breaks="what a meta server did not take is not told again",
        file=METER,
        old="                self._dirty.update(hours[told:])\n",
        new="",
        catchers=("tests/unit/service/test_usage_meter.py::test_what_was_not_taken_is_told_again",),
    ),
    Mutant(
        name="metered-to-nobody-by-workers",
        invariants=(20,),
        breaks="what Spark's workers ask of the store is billed to no tenant",
        file=MEASURED,
        old="            self.add(kind, tenant, done)\n",
        new="            self.add(kind, None, done)\n",
        catchers=("tests/unit/storage/test_measured_store.py::test_requests_are_counted_for_the_tenant_of_the_key",),
    ),
)
