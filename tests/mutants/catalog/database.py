"""The meta database on MySQL."""

from mutants.mutant import Mutant

RETRIES = "services/meta/tistream_meta/retries.py"
REPOSITORY = "services/meta/tistream_meta/repository.py"
DATABASE = "services/meta/tistream_meta/database.py"
MIGRATIONS = "services/meta/tistream_meta/migrations/__init__.py"
HEARD = "services/meta/tistream_meta/heard.py"
OWNERSHIP = "services/meta/tistream_meta/ownership.py"

TRANSACTIONS_TESTS = "tests/unit/meta/test_mysql_transactions.py"
MIGRATIONS_TESTS = "tests/unit/meta/test_mysql_migrations.py"
VALUES_TESTS = "tests/unit/meta/test_stored_values.py"
HEARD_TESTS = "tests/unit/meta/test_heard.py"

MUTANTS = (
    Mutant(
        name="database-deadlock-not-done-again",
        invariants=(21,),
        breaks="a transaction that a deadlock has undone fails",
        file=RETRIES,
        old="        return DEADLOCKS_MAX\n",
        new="        return 1\n",
        catchers=(f"{TRANSACTIONS_TESTS}::test_a_transaction_that_a_deadlock_has_undone_is_done_again",),
    ),
    Mutant(
        name="database-lost-connection-not-done-again",
        invariants=(21,),
        breaks="a transaction whose connection was killed before its commit fails",
        file=RETRIES,
        old="    return OTHERS_MAX if lost or code == LOCK_WAIT else 1\n",
        new="    return OTHERS_MAX if code == LOCK_WAIT else 1\n",
        catchers=(f"{TRANSACTIONS_TESTS}::test_what_was_killed_before_its_commit_is_done_again_and_counts_once",),
    ),
    Mutant(
        name="database-unknown-commit-done-again",
        invariants=(15, 16),
        breaks="a transaction is done again though it may have been committed",
        file=RETRIES,
        old="    if committing:\n        return 1\n",
        new="    if committing:\n        return OTHERS_MAX\n",
        catchers=(f"{TRANSACTIONS_TESTS}::test_what_is_killed_at_its_commit_is_not_done_again_nobody_knows",),
    ),
    Mutant(
        name="database-unknown-election-not-read-back",
        invariants=(21,),
        breaks="who won an election and was not told waits for its own lease to run out",
        file=REPOSITORY,
        old="            self._unsure = left or self._unsure\n",
        new="            self._unsure = None\n",
        catchers=(f"{TRANSACTIONS_TESTS}::test_who_won_an_election_without_hearing_of_it_wins_the_next_at_once",),
    ),
    Mutant(
        name="database-unknown-election-taken-from-a-successor",
        invariants=(15,),
        breaks="who may have won an election takes the lease from a newer process of its name",
        file=REPOSITORY,
        old="            own = own | and_(owner.c.owner_rev == rev, owner.c.lease_until_ms == until_ms)\n",
        new="            own = own | (owner.c.owner_rev >= rev)\n",
        catchers=(
            f"{TRANSACTIONS_TESTS}::"
            "test_who_won_an_election_without_hearing_of_it_takes_nothing_from_a_successor_of_its_name",
        ),
    ),
    Mutant(
        name="database-that-cannot-write-kept",
        invariants=(21,),
        breaks="after a fail-over the connections to the server that was the primary are used on",
        file=RETRIES,
        old="_CANNOT_WRITE = frozenset({1290, 1792, 1836, 1053})\n",
        new="_CANNOT_WRITE = frozenset({1053})\n",
        catchers=(f"{TRANSACTIONS_TESTS}::test_connections_that_lead_to_a_server_that_cannot_write_any_more_are_left",),
    ),
    Mutant(
        name="database-answer-waited-for-without-end",
        invariants=(21,),
        breaks="an answer of a database that hangs is waited for for ever",
        file=DATABASE,
        old='            "read_timeout": limits.answer_s,\n',
        new='            "read_timeout": None,\n',
        catchers=(f"{TRANSACTIONS_TESTS}::test_a_database_that_hangs_is_given_up_and_nothing_is_wrong_after_it",),
    ),
    Mutant(
        name="database-clock-in-the-servers-zone",
        invariants=(15,),
        breaks="leases are told by a clock that jumps where the server's or the session's zone does",
        file=DATABASE,
        old="UTC_TIMESTAMP(6)",
        new="NOW(6)",
        catchers=(f"{TRANSACTIONS_TESTS}::test_leases_are_told_by_the_databases_clock_whatever_zone_it_is_set_to",),
    ),
    Mutant(
        name="database-values-cut",
        invariants=(20,),
        breaks="a value that does not fit is cut where the server is set so",
        file=DATABASE,
        old='    "sql_mode": "\'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION\'",\n',
        new="",
        catchers=(f"{TRANSACTIONS_TESTS}::test_a_value_that_does_not_fit_is_refused_though_the_server_would_cut_it",),
    ),
    Mutant(
        name="database-tables-without-transactions",
        invariants=(15, 16),
        breaks="tables are of whatever engine the server makes by default",
        file=DATABASE,
        old='    "default_storage_engine": "InnoDB",\n',
        new="",
        catchers=(f"{MIGRATIONS_TESTS}::test_the_schema_is_the_same_whatever_the_servers_defaults_are",),
    ),
    Mutant(
        name="database-names-compared-without-case",
        invariants=(20,),
        breaks="tenants whose names differ in case alone are one on MySQL",
        file=MIGRATIONS,
        old="CHARACTER SET ascii COLLATE ascii_bin",
        new="CHARACTER SET ascii COLLATE ascii_general_ci",
        catchers=(f"{VALUES_TESTS}::test_names_that_differ_in_case_alone_are_different_everywhere",),
    ),
    Mutant(
        name="database-migrated-by-several-at-once",
        invariants=(21,),
        breaks="meta servers that start together bring the schema up to date side by side",
        file=MIGRATIONS,
        old='        if engine.dialect.name == "mysql":\n',
        new='        if engine.dialect.name == "none":\n',
        catchers=(f"{MIGRATIONS_TESTS}::test_meta_servers_that_start_at_once_make_the_schema_once",),
    ),
    Mutant(
        name="database-columns-made-twice",
        invariants=(21,),
        breaks="a migration that was cut short cannot be gone on with",
        file=MIGRATIONS,
        old="        if statement.strip() and not _is_there(connection, statement):\n",
        new="        if statement.strip():\n",
        catchers=(f"{MIGRATIONS_TESTS}::test_wherever_it_is_cut_short_it_becomes_whole",),
    ),
    Mutant(
        name="database-away-nodes-taken-for-silent",
        invariants=(21,),
        breaks="nodes whose heartbeats were refused while the database was away are lost",
        file=HEARD,
        old="node_id: heard_ms + lost_ms for",
        new="node_id: heard_ms for",
        catchers=(f"{HEARD_TESTS}::test_while_nobody_can_be_heard_nobody_is_silent",),
    ),
    Mutant(
        name="database-away-owner-judges-on",
        invariants=(21,),
        breaks="an owner whose lease has run out calls nodes lost that it had not heard since",
        file=OWNERSHIP,
        old="        return self._since_ms if self.held else None\n",
        new="        return self._since_ms\n",
        catchers=(f"{HEARD_TESTS}::test_an_owner_whose_lease_has_run_out_judges_nobody_until_it_is_the_owner_again",),
    ),
)
