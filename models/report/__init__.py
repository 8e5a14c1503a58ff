"""Reports, written as one folder: pages of Markdown with pictures, and the same as HTML.

`models.report.evaluation` puts the report of `offramp evaluate` together from its parts.
"""
