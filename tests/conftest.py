"""Hypothesis profiles: the suite is the same on every run; `make fuzz` looks for what it has not seen yet."""

from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "fuzz", settings.get_profile("default"), derandomize=False, max_examples=1000, print_blob=True
)
settings.load_profile("default")
