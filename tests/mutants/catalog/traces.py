"""Where time goes, and who may say so (docs/adr/0016)."""

from mutants.mutant import Mutant

CLIENT = "shared/tistream/wire/client.py"
TRACES = "shared/tistream/service/traces.py"
OTEL = "shared/tistream/service/otel.py"
ROUTES = "services/sorter/tistream_sorter/routes.py"
REQUESTS = "tests/unit/service/test_traces.py::"
TICKS = "tests/unit/sorter/test_tick_traces.py::"

MUTANTS = (
    Mutant(
        name="traces-context-stays-in-the-process",
        invariants=(21,),
        breaks="a call to another service is not told whose trace it belongs to: that service's part is missing",
        file=CLIENT,
        old="            response = self._once(method, url, {**headers, trace.HEADER: str(context)}, **how)\n",
        new="            response = self._once(method, url, headers, **how)\n",
        catchers=(REQUESTS + "test_a_request_and_what_it_asks_of_another_service_are_one_trace",),
    ),
    Mutant(
        name="traces-callers-from-outside-decide",
        invariants=(20, 23),
        breaks="a user's traceparent decides what is kept, and puts spans into whatever trace it names",
        file=TRACES,
        old='            return trace.begin("request", kind="server", links=[] if context is None else [context])\n',
        new='            return trace.begin("request", kind="server", parent=context)\n',
        catchers=(REQUESTS + "test_a_caller_from_outside_is_linked_to_and_decides_nothing",),
    ),
    Mutant(
        name="traces-strangers-join",
        invariants=(20, 23),
        breaks="who reaches a service's port without its token makes spans in a trace of their choice",
        file=TRACES,
        old='        return self._guard is None or self._guard.refusal(path, headers.get("authorization")) is None\n',
        new="        return True\n",
        catchers=(REQUESTS + "test_between_services_only_who_bears_the_token_is_in_a_trace",),
    ),
    Mutant(
        name="traces-paths-as-names",
        invariants=(20,),
        breaks="names of spans are paths as they came, with whatever names and keys are in them",
        file=TRACES,
        old='    span.rename(f"{method} {route}")\n',
        new="    span.rename(f\"{method} {scope['path']}\")\n",
        catchers=(REQUESTS + "test_nothing_of_paths_queries_tokens_and_errors_is_in_a_span",),
    ),
    Mutant(
        name="traces-collector-holds-the-request",
        invariants=(21,),
        breaks="who ends a span sends it: a collector that hangs holds every request and tick",
        file=OTEL,
        old="        self._span.end(ended_ns)\n",
        new="        self._span.end(ended_ns)\n        self._span._span_processor.force_flush(30_000)\n",
        catchers=(REQUESTS + "test_no_request_waits_for_a_collector_that_hangs",),
    ),
    Mutant(
        name="traces-end-waits-for-the-collector",
        invariants=(21,),
        breaks="a process that is asked to end waits for a collector that hangs",
        file=OTEL,
        old='        start_thread("traces", self._provider.shutdown).join(limit_s)\n',
        new="        self._provider.shutdown()\n",
        catchers=(REQUESTS + "test_no_request_waits_for_a_collector_that_hangs",),
    ),
    Mutant(
        name="traces-tick-forgets-its-files",
        invariants=(21,),
        breaks="a tick is not in the trace of its files: what a file waited for cannot be seen",
        file=ROUTES,
        old="    for task_id, files in by_task(batch, trace.mark()).items():\n",
        new="    for task_id, files in by_task(batch).items():\n",
        catchers=(TICKS + "test_a_file_is_followed_from_where_it_was_found_to_its_manifest",),
    ),
)
