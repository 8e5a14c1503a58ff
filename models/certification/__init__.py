"""Certified rules: from recorded texts to a ladder, its card and its summary.

Some texts choose a path of rules (`path_choice`), others certify it (`rungs`); what leaving early
costs a text is defined in `losses`.
"""
