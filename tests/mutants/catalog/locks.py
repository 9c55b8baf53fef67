"""Who may come in: tokens between services, TLS, and addresses that are bound."""

from mutants.mutant import Mutant

TOKEN = "shared/tistream/wire/service_token.py"
AUTH = "shared/tistream/wire/service_auth.py"
GUARD = "shared/tistream/service/guard.py"
SETTINGS = "shared/tistream/service/settings.py"
SERVE = "shared/tistream/service/serve.py"
TLS = "shared/tistream/service/tls.py"
SPARK = "services/sorter/tistream_sorter/spark_locks.py"
CALLERS = "services/api/tistream_api/callers.py"

TOKEN_TESTS = "tests/unit/wire/test_service_token.py"
GUARD_TESTS = "tests/unit/service/test_guard.py"
SETTINGS_TESTS = "tests/unit/service/test_settings.py"
SERVE_TESTS = "tests/unit/service/test_serve.py"
TLS_TESTS = "tests/unit/service/test_tls.py"
SPARK_TESTS = "tests/unit/sorter/test_spark_locks.py"
CALLERS_TESTS = "tests/unit/api/test_callers.py"

MUTANTS = (
    Mutant(
        name="locks-expired-token-taken",
        invariants=(20,),
        breaks="a token that was overheard is good for ever",
        file=TOKEN,
        old="    if now_s >= end_s + SKEW_S:\n",
        new="    if now_s < 0:\n",
        catchers=(f"{TOKEN_TESTS}::test_anything_else_is_refused",),
    ),
    Mutant(
        name="locks-long-token-taken",
        invariants=(20,),
        breaks="a service's key signs tokens of any length of life",
        file=TOKEN,
        old=" or end_s - begin_s > LIFE_S:\n",
        new=":\n",
        catchers=(f"{TOKEN_TESTS}::test_anything_else_is_refused",),
    ),
    Mutant(
        name="locks-signature-not-checked",
        invariants=(20,),
        breaks="whoever writes the claims of a service is one",
        file=TOKEN,
        old="    if not any(hmac.compare_digest(",
        new="    if not any(signature and hmac.compare_digest(b'', b'') or hmac.compare_digest(",
        catchers=(f"{TOKEN_TESTS}::test_anything_else_is_refused",),
    ),
    Mutant(
        name="locks-header-not-checked",
        invariants=(20,),
        breaks="a token says by which algorithm it wants to be taken",
        file=TOKEN,
        old="    if header != _HEADER:\n",
        new="    if not header:\n",
        catchers=(f"{TOKEN_TESTS}::test_anything_else_is_refused",),
    ),
    Mutant(
        name="locks-former-key-for-ever",
        invariants=(20,),
        breaks="a key that was taken out of the file is taken by a process that signs nothing",
        file=AUTH,
        old="        if now_ms - self._looked_ms >= _LOOK_MS:",
        new="        if now_ms < self._looked_ms:",
        catchers=(f"{TOKEN_TESTS}::test_a_new_key_signs_and_the_former_one_is_taken_until_it_is_gone",),
    ),
    Mutant(
        name="locks-new-key-refused",
        invariants=(21,),
        breaks="a call signed with a key that was added a moment ago is refused",
        file=AUTH,
        old="            if not self._file.look():  #",
        new="            if self._file:  #",
        catchers=(f"{TOKEN_TESTS}::test_a_new_key_signs_and_the_former_one_is_taken_until_it_is_gone",),
    ),
    Mutant(
        name="locks-paths-below-probes-open",
        invariants=(20,),
        breaks="paths that begin as those of the probes do want no token",
        file=GUARD,
        old="        if path in OPEN:\n",
        new="        if path.lstrip('/').startswith(('healthz', 'readyz')):\n",
        catchers=(f"{GUARD_TESTS}::test_no_route_answers_without_the_token_of_a_service",),
    ),
    Mutant(
        name="locks-metrics-token-opens-everything",
        invariants=(20,),
        breaks="what Prometheus shows opens every route",
        file=GUARD,
        old="        if path == METRICS and self._may_scrape(token):\n",
        new="        if self._may_scrape(token):\n",
        catchers=(f"{GUARD_TESTS}::test_no_route_answers_without_the_token_of_a_service",),
    ),
    Mutant(
        name="locks-bound-without-a-key",
        invariants=(20,),
        breaks="a service listens to other machines without asking for tokens",
        file=SETTINGS,
        old='        if self.service_key_file is None:\n            yield "SERVICE_KEY_FILE"\n',
        new="",
        catchers=(f"{SETTINGS_TESTS}::test_elsewhere_only_with_tokens_and_tls",),
    ),
    Mutant(
        name="locks-bound-in-the-clear",
        invariants=(20,),
        breaks="a service listens to other machines in the clear",
        file=SETTINGS,
        old="        if not self.tls.serves and not self.tls.terminated_elsewhere:\n",
        new="        if not self.tls.serves and not self.tls.terminated_elsewhere and self.tls.ca_file is None:\n",
        catchers=(f"{SETTINGS_TESTS}::test_elsewhere_only_with_tokens_and_tls",),
    ),
    Mutant(
        name="locks-api-bound-without-auth",
        invariants=(20,),
        breaks="an API server lets anybody of another machine in",
        file=SETTINGS,
        old='        if getattr(self, "auth", "on") == "off":',
        new='        if getattr(self, "auth", "on") == "no":',
        catchers=(f"{SETTINGS_TESTS}::test_the_api_server_needs_auth_besides",),
    ),
    Mutant(
        name="locks-client-certificate-optional",
        invariants=(20,),
        breaks="with mutual TLS who shows no certificate is let in",
        file=TLS,
        old="        context.verify_mode = ssl.CERT_REQUIRED\n",
        new="        context.verify_mode = ssl.CERT_OPTIONAL\n",
        catchers=(f"{TLS_TESTS}::test_with_mutual_tls_only_who_shows_a_certificate_of_the_authority_is_answered",),
    ),
    Mutant(
        name="locks-renewed-certificate-not-loaded",
        invariants=(21,),
        breaks="a certificate that was renewed is not served before a restart",
        file=TLS,
        old="                if context is not None:\n",
        new="                if context is not None and context is not self.server:\n",
        catchers=(f"{TLS_TESTS}::test_certificates_that_change_are_served_and_trusted_without_a_restart",),
    ),
    Mutant(
        name="locks-spark-cluster-without-a-secret",
        invariants=(20,),
        breaks="whoever reaches a driver's port gives it work, and gets rows",
        file=SPARK,
        old='    if master.startswith("spark:") and not _SECRET_FORM.fullmatch(conf.get(SECRET, "")):\n',
        new='    if master.startswith("spark:") and SECRET not in conf:\n',
        catchers=(f"{SPARK_TESTS}::test_these_are_refused_and_told_the_way_out",),
    ),
    Mutant(
        name="locks-spark-bound-everywhere",
        invariants=(20,),
        breaks="a driver that names itself by the loopback address listens on every other too",
        file=SPARK,
        old="    if wanted.get(_HOST) == LOOPBACK and wanted.get(_BIND, LOOPBACK) == LOOPBACK:\n",
        new="    if wanted.get(_HOST) == LOOPBACK:\n",
        catchers=(f"{SPARK_TESTS}::test_these_are_refused_and_told_the_way_out",),
    ),
    Mutant(
        name="access-made-tokens-not-heard-of",
        invariants=(20,),
        breaks="a token is answered as made, and lets nobody in for a while",
        file=CALLERS,
        old="                if token_id in (self._known or {}):\n",
        new="                if token_id:\n",
        catchers=(f"{CALLERS_TESTS}::test_who_makes_a_token_is_answered_when_it_is_so_here",),
    ),
)
