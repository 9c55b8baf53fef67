"""What people look at: lag by stage, every tenant at a glance, DDL, causes (docs/console.md)."""

from mutants.mutant import Mutant

STAGES = "services/api/tistream_api/stage_lags.py"
HISTORY = "services/api/tistream_api/lag_history.py"
OVERVIEW = "services/api/tistream_api/overview.py"
ROUTES = "services/api/tistream_api/insight_routes.py"
CLIENT = "shared/tistream/wire/client.py"
CAUSE = "shared/tistream/cause.py"
CONCURRENCY = "shared/tistream/concurrency.py"

MUTANTS = (
    Mutant(
        name="stage-of-the-fastest-part",
        invariants=(21,),
        breaks="a stage is said to be as far as the fastest store or task",
        file=STAGES,
        old="    return min(numbers, default=0)\n",
        new="    return max(numbers, default=0)\n",
        catchers=("tests/unit/api/test_stage_lags.py::test_each_stage_is_as_far_as_the_slowest_that_has_a_part_in_it",),
    ),
    Mutant(
        name="lag-without-stores-that-nobody-tells-of",
        invariants=(21,),
        breaks="a store that no dispatcher tells of does not count for the lag",
        file=STAGES,
        old="    all_told = bool(told) and told >= {store.store_id for store in route.stores or ()}\n",
        new="    all_told = bool(told)\n",
        catchers=(
            "tests/unit/api/test_stage_lags.py::test_a_store_that_nobody_tells_of_leaves_push_and_dispatch_unknown",
        ),
    ),
    Mutant(
        name="lag-of-a-tenant-that-is-gone-kept",
        invariants=(23,),
        breaks="the lags of tenants that are gone stay in memory for ever",
        file=HISTORY,
        old="            for gone in self._rings.keys() - lags.keys():\n",
        new="            for gone in ():\n",
        catchers=("tests/unit/api/test_stage_lags.py::test_a_tenants_samples_begin_with_it_and_end_with_it",),
    ),
    Mutant(
        name="damage-told-only-of-late-tenants",
        invariants=(17, 21),
        breaks="a damaged tenant that keeps up is shown as live",
        file=OVERVIEW,
        old="    if damaged:\n",
        new="    if damaged and picture.lag_seconds > LATE_SECONDS:\n",
        catchers=("tests/unit/api/test_overview.py::test_damage_is_told_however_late_the_tenant_is",),
    ),
    Mutant(
        name="overview-of-everybodys-tenants",
        invariants=(20,),
        breaks="a token of one tenant is shown all tenants",
        file=ROUTES,
        old="        views = [view for key, view in found if _may_see(grants, key)]\n",
        new="        views = [view for _, view in found if grants]\n",
        catchers=("tests/unit/api/test_access_routes.py",),
    ),
    Mutant(
        name="cause-stays-in-the-process",
        invariants=(21,),
        breaks="a call to another service does not say what it is made for",
        file=CLIENT,
        old="        if (cause_id := cause.current()) is not None:\n",
        new="        if (cause_id := None) is not None:\n",
        catchers=("tests/unit/service/test_cause.py::test_a_call_from_service_to_service_keeps_its_cause",),
    ),
    Mutant(
        name="cause-lost-in-another-thread",
        invariants=(21,),
        breaks="what is handed to an executor is done for nobody",
        file=CONCURRENCY,
        old="        return super().submit(lambda: context.run(fn, *args, **kwargs))\n",
        new="        return super().submit(fn, *args, **kwargs)\n",
        catchers=("tests/unit/service/test_cause.py::test_a_call_from_service_to_service_keeps_its_cause",),
    ),
    Mutant(
        name="cause-of-any-form",
        invariants=(20,),
        breaks="whatever a caller names as its cause goes into logs and headers",
        file=CAUSE,
        old="    return text if text is not None and _FORM.fullmatch(text) else None\n",
        new="    return text\n",
        catchers=("tests/unit/service/test_cause.py::test_a_cause_of_another_form_is_not_taken",),
    ),
)
