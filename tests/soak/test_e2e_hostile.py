"""Two tenants under load of which one is hostile: the other's rows and answers are as if it was alone, and it is late
for no longer than its own upstream makes it."""
# Attack: one tenant that does all of this at once to another

from __future__ import annotations

from pathlib import Path

from support.hostile import table
from support.hostile.run import Options, run
from tistream_api.request.params import FORMATS


def test_what_one_tenant_does_the_other_does_not_notice(tmp_path: Path) -> None:
    """Short phases; `make hostile` has longer ones. How fast anything was is shown beside the calm, and not judged."""
    outcome = run(Options(tmp_path, phase_s=5.0, rows_per_s=100, junk=500, idle=300))
    print(table.markdown(outcome.rows))
    assert not outcome.problems, "\n".join(outcome.problems)
    assert outcome.verify["events_compared_with_truth"] == outcome.verify["rows"] > 500
    assert outcome.verify["ddls"] >= 1
    assert min(outcome.events.values()) > 100, "both consumers were served"
    assert [row["phase"] for row in outcome.rows][1:-1] == [
        "flood",
        "pulls",
        *(f"unread {form}" for form in FORMATS),
        "names and junk",
        "damaged files",
        "key revoked",
        "key denied",
        "all at once",
    ]
    told = outcome.answers
    for wanted in ("other 403", "nobody 401", "pulls 200", "notifications 202", "bodies 413", "idle held"):
        assert told[wanted], f"it was never told {wanted}: {told}"
    assert any(kind.endswith(" 429") for kind in told), f"it was never told to come again: {told}"
    assert outcome.held["damaged files"]["stage"] == "damaged"
    for phase in ("key revoked", "key denied"):
        assert "encryption key" in outcome.held[phase]["reason"]
