"""What holds for every test."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["support.not_run", "support.tiers", "support.platform_reports"]

# Speed is measured in benchmarks, never in a test; nor does a slow machine meet the health check of slow strategies.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
