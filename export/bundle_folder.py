"""What makes a folder a bundle that export may replace."""

from export.errors import ExportFailed
from models.staging import FolderKind
from serve.bundle.loader import MANIFEST

BUNDLE = FolderKind("bundle", MANIFEST, ExportFailed)
