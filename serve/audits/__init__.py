"""Audits: answers that have been sent, compared with what full depth says of the same texts."""
