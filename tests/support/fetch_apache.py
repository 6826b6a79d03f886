"""Fetch Apache ZooKeeper 3.9.4 for comparisons. Debian has no package of it, but pyspark's source archive contains it.

The archive is fetched once, with pip, and its hash is checked. Only the jars that a ZooKeeper server needs are kept, in
a cache folder outside the tree::

    $ZOOLET_CACHE, $XDG_CACHE_HOME/zoolet or ~/.cache/zoolet
        zookeeper-3.9.4/*.jar

``make apache-3.9`` runs this; ``--archive FILE`` uses an archive that already exists.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

RELEASE: Final = "3.9.4"
PYSPARK_ARCHIVE: Final = "pyspark==4.1.4"
ARCHIVE_MB: Final = 456
ARCHIVE_SHA256: Final = "bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73"
NEEDED_MEMBERS: Final = re.compile(
    r"[^/]+/deps/jars/(zookeeper-3|zookeeper-jute-|netty-|slf4j-api-|log4j-|metrics-core-|snappy-java-|commons-"
    r"|jackson-|audience-annotations-)[^/]*\.jar"
)
"""The members of the archive that are extracted."""


def cache_folder() -> Path:
    """Return the cache folder; it need not exist."""
    chosen = os.environ.get("ZOOLET_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "zoolet")


def apache_folder() -> Path:
    """Return the folder with the jars of Apache ZooKeeper 3.9.4; it need not exist."""
    return cache_folder() / f"zookeeper-{RELEASE}"


def fetch(folder: Path) -> Path:
    """Download the archive into *folder* and return its path.

    Raises:
        SystemExit: pip failed.
    """
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"]
    code = subprocess.run([*command, "--no-binary", ":all:", "--dest", str(folder), PYSPARK_ARCHIVE]).returncode
    if code:
        raise SystemExit(f"pip could not download {PYSPARK_ARCHIVE}; its exit code is {code}")
    (archive,) = folder.glob("*.tar.gz")
    return archive


def extract(archive: Path, folder: Path) -> int:
    """Extract the jars of *archive* into *folder*, all or none, and return their number.

    Raises:
        SystemExit: The hash of the archive is not the expected hash.
    """
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != ARCHIVE_SHA256:
        raise SystemExit(f"{archive.name} is not the expected archive: its SHA-256 is {found}, not {ARCHIVE_SHA256}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with tempfile.TemporaryDirectory(prefix="unpacking-", dir=folder.parent) as unpacking:
        jars = Path(unpacking, "jars")
        jars.mkdir()
        with tarfile.open(archive, "r|gz") as members:
            for member in members:
                content = members.extractfile(member) if NEEDED_MEMBERS.fullmatch(member.name) else None
                if content is not None:
                    with Path(jars, Path(member.name).name).open("wb") as jar:
                        shutil.copyfileobj(content, jar)
                    count += 1
        jars.rename(folder)
    return count


def main(arguments: list[str] | None = None) -> None:
    """Fetch and extract the jars unless they are present, and print a summary."""
    parser = argparse.ArgumentParser(description=f"Fetch Apache ZooKeeper {RELEASE} into the cache folder.")
    parser.add_argument("--archive", type=Path, help="the archive, if it is already here: nothing is downloaded")
    chosen = parser.parse_args(arguments)
    folder = apache_folder()
    if folder.is_dir():
        print(f"Apache ZooKeeper {RELEASE} is already in {folder}")
        return
    if chosen.archive:
        count = extract(chosen.archive, folder)
    else:
        print(
            f"Downloading {PYSPARK_ARCHIVE}, {ARCHIVE_MB} MB, for the jars of Apache ZooKeeper {RELEASE} in it",
            flush=True,
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="download-", dir=folder.parent) as download:
            count = extract(fetch(Path(download)), folder)  # a downloaded archive is deleted with the temporary folder
    size = sum(jar.stat().st_size for jar in folder.iterdir())
    print(f"Apache ZooKeeper {RELEASE} is in {folder}: {count} jars, {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
