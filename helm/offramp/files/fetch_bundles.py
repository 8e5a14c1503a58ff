"""Download bundles, check each against its hash, and unpack each into its own folder.

An init container runs `fetch_bundles.py FOLDER '[{"name", "url", "sha256"}, ...]'`. A token in
BUNDLE_TOKEN is sent as Bearer token. The script needs only Python.
"""

import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from pathlib import Path

ATTEMPTS = 5
TIMEOUT_S = 60.0
CHUNK_BYTES = 1 << 20
MANIFEST = "manifest.json"


class Refused(Exception):
    """The bundle cannot be fetched, and a further attempt would not help."""


def main(folder: Path, archives: list[dict[str, str]]) -> None:
    """Fetch every archive."""
    for archive in archives:
        fetch(archive, folder / archive["name"])
        print(f"{archive['name']}: fetched and verified", flush=True)


def fetch(archive: dict[str, str], target: Path) -> None:
    """Download, verify and unpack one archive; `target` appears only when it is complete."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        file = Path(scratch) / "archive"
        found = download_patiently(archive["url"], file)
        if found != archive["sha256"]:
            raise Refused(
                f"{archive['name']}: the archive's sha256 is {found}, expected {archive['sha256']}"
            )
        unpacked = Path(scratch) / "unpacked"
        unpack(file, unpacked)
        shutil.rmtree(target, ignore_errors=True)
        bundle_in(unpacked, archive["name"]).rename(target)


def download_patiently(url: str, file: Path) -> str:
    """Download with retries; return the sha256."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return download(url, file)
        except OSError as error:  # urllib's errors are OSErrors
            print(f"{url}: attempt {attempt} of {ATTEMPTS}: {error}", file=sys.stderr, flush=True)
            if attempt == ATTEMPTS:
                raise Refused(f"{url} cannot be downloaded: {error}") from error
            time.sleep(min(30, 2**attempt))
    raise AssertionError("unreachable")


def download(url: str, file: Path) -> str:
    """Download to a file; return its sha256."""
    token = os.environ.get("BUNDLE_TOKEN", "")
    digest = hashlib.sha256()
    request = urllib.request.Request(url)
    if token:
        # A redirect, such as to a store's signed address, does not get the token.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer, file.open("wb") as out:
        while chunk := answer.read(CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def unpack(file: Path, target: Path) -> None:
    """Unpack a tar or zip file; a member outside of the target is an error."""
    target.mkdir()
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            archive.extractall(target)
    elif tarfile.is_tarfile(file):
        with tarfile.open(file) as archive:
            archive.extractall(target, filter="data")
    else:
        raise Refused(f"{file.name} is neither a tar nor a zip archive")


def bundle_in(unpacked: Path, name: str) -> Path:
    """Return the folder with the manifest: the archive's root or a folder at its top."""
    folders = [unpacked, *(entry for entry in unpacked.iterdir() if entry.is_dir())]
    for folder in folders:
        if (folder / MANIFEST).is_file():
            return folder
    raise Refused(f"{name}: no {MANIFEST} in the archive, nor in a folder at its top")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except Refused as refusal:
        sys.exit(f"fetch_bundles: {refusal}")
