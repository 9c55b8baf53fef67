"""What holds for every test."""

from hypothesis import settings

pytest_plugins = ["support.not_run", "support.tiers", "support.platform_reports"]

settings.register_profile("untimed", deadline=None)  # speed is measured in benchmarks, never in a test
settings.load_profile("untimed")
