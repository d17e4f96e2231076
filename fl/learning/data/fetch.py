"""Download of the official EMNIST files into a folder that `emnist` reads."""

import hashlib
import http.client
import os
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from fl.errors import DataError

EMNIST_URL = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
# The checksum that common loaders (torchvision, for one) compare with.
EMNIST_MD5 = "58c8d27c78d21e728a6bc7b3cc06412e"
# Training files first: they are put in place in this order, and a folder with training files alone is refused by the
# loader, so an interrupted download is never taken for a complete data set.
EMNIST_FILES = tuple(
    f"emnist-byclass-{split}-{kind}-ubyte" for split in ("train", "test") for kind in ("images-idx3", "labels-idx1")
)

_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 60.0
_BY_HAND = "get the EMNIST byclass files elsewhere and name their folder in data.path or AIRDP_DATA"


def emnist_cache_folder() -> Path:
    """Where a download goes unless told otherwise: $XDG_CACHE_HOME/airdp/emnist, or ~/.cache/airdp/emnist."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says that a relative path is to be ignored.
    return (base if base.is_absolute() else Path.home() / ".cache") / "airdp" / "emnist"


def find_idx(folder: Path, name: str) -> Path | None:
    """The file ``name`` in ``folder``, plain or else gzipped; None where there is neither."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def has_emnist(folder: Path) -> bool:
    """Whether all four official files are in ``folder``."""
    return all(find_idx(folder, name) for name in EMNIST_FILES)


def download_emnist(
    target: Path,
    url: str = EMNIST_URL,
    md5: str = EMNIST_MD5,
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Fetch the EMNIST archive (562 MB) and put its four byclass files into ``target``, which is returned.

    The archive goes to a temporary folder inside ``target``. Only when its MD5 matches are the four files extracted
    there, and then renamed into place, each atomically. On any failure the temporary folder is removed and files that
    were there before stay. ``progress(received_bytes, total_bytes or None)`` is called after each chunk. MD5 finds
    damage and mix-ups; against forgery there is only the https connection.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=target) as folder:
            scratch = Path(folder)
            archive = scratch / "archive.zip"
            found = _stream(url, archive, progress)
            if found != md5:
                raise DataError(
                    f"{url} has MD5 {found} after {archive.stat().st_size} bytes, expected {md5}: the download is "
                    f"damaged or the file has changed. Try again; {_BY_HAND}"
                )
            for staged in _extract(archive, scratch):
                staged.replace(target / staged.name)
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{url} answered {error.code} {error.reason}; try later, or {_BY_HAND}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DataError(
            f"cannot download {url} to {target} ({error}). Check the connection, the free space and the folder's "
            f"permissions; without internet, {_BY_HAND}"
        ) from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{url} is not a readable zip archive ({error}); {_BY_HAND}") from error
    return target


def _stream(url: str, archive: Path, progress: Callable[[int, int | None], None] | None) -> str:
    """Write what ``url`` serves to ``archive``; returns its MD5 (hex)."""
    digest = hashlib.md5(usedforsecurity=False)
    received = 0
    # A file: URL (a copy on a share) is as good as any, because the checksum decides.
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response, archive.open("wb") as sink:  # noqa: S310
        length = response.headers.get("Content-Length")
        total = int(length) if length is not None else None
        while chunk := response.read(_CHUNK_BYTES):
            sink.write(chunk)
            digest.update(chunk)
            received += len(chunk)
            if progress is not None:
                progress(received, total)
    return digest.hexdigest()


def _extract(archive: Path, scratch: Path) -> list[Path]:
    """Unpack the byclass files, by their bare names, into ``scratch``; in the order of `EMNIST_FILES`."""
    staged: list[Path] = []
    with zipfile.ZipFile(archive) as bundle:
        members = {PurePosixPath(name).name: name for name in bundle.namelist()}
        for name in EMNIST_FILES:
            stored = next((candidate for candidate in (f"{name}.gz", name) if candidate in members), None)
            if stored is None:
                raise DataError(f"the archive holds no {name}[.gz], expected the EMNIST gzip.zip of NIST; {_BY_HAND}")
            with bundle.open(members[stored]) as source, (scratch / stored).open("wb") as sink:
                shutil.copyfileobj(source, sink)
            staged.append(scratch / stored)
    return staged
