"""Why an export stops."""

from serve.errors import OfframpError


class ExportFailed(OfframpError):
    """The model cannot be exported, or what was exported is not the model."""

    code = "export_failed"
