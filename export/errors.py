"""Errors of export."""

from serve.errors import OfframpError


class ExportFailed(OfframpError):
    """The model cannot be exported, or the exported graphs differ from it."""

    code = "export_failed"
