"""Whether a load was as large as asked for: with less load a server looks better."""

import numpy as np

from loadtest.load.figures import Figures

# Shares of what was asked for; starting users and random arrivals explain smaller differences.
_LEAST_USERS, _LEAST_REQUESTS = 0.95, 0.9
# A request that is due may wait so long in the load generator; longer, and the rate is not kept.
_MOST_LATE_MS = 100.0
_MOST_CORES = 0.8


def shortfalls(figures: Figures) -> list[str]:
    """Return a sentence for each way in which the load fell short; empty if it did not."""
    found = []
    running, wanted = _user_seconds(figures)
    if running < _LEAST_USERS * wanted:
        found.append(f"only {running / wanted:.0%} of the users ran")
    if figures.rate_per_user:
        due = figures.rate_per_user * wanted
        if due and figures.total.requests < _LEAST_REQUESTS * due:
            found.append(f"{figures.total.requests} of {due:.0f} requests were made")
        late_ms = np.quantile(figures.samples.column("late_ms"), 0.95) if figures.kinds else 0.0
        if late_ms > _MOST_LATE_MS:
            found.append(f"one request in twenty was sent {late_ms:.0f} ms late or more")
    if figures.seconds and figures.cost.generator_cpu_s / figures.seconds > _MOST_CORES:
        found.append("the load generator was at the limit of its processor")
    return found


def _user_seconds(figures: Figures) -> tuple[float, float]:
    """Return the users that ran and that should have run, each times seconds."""
    if len(figures.users) < 2:
        return 0.0, 0.0
    moments, running = np.array(figures.users, dtype=float).T
    # Up to the last request: afterwards users wait for their answers.
    lengths = np.diff(np.minimum(moments, figures.seconds), append=figures.seconds).clip(min=0)
    return float(running @ lengths), float(np.array(figures.wanted_users, dtype=float) @ lengths)
