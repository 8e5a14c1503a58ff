"""Reports: tables, pictures and pages, written as one folder."""
