"""The console: a page for browsers, made of files of this package alone."""
