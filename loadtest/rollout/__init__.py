"""Rollouts under load: a bad candidate and a good one."""
