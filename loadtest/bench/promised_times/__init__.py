"""`python -m loadtest.bench.promised_times`: times that targets promise against times taken."""
