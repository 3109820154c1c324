"""A builder of images, and a base for them, made once by debootstrap and kept in the cache."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from tests.wheels.conftest import Pin, bring, cache_folder

UV = Pin("uv", "0.9.30", "4366dd740ac9ad3ec50a58868a955b032493bb7d7e6ed368289e6ced8bbc70f3")
REVISION = "1"
"""Raised when how the base is made changes."""
BASE_PACKAGES = ("python3", "python3-venv")
NOT_IN_THE_BASE = ("proc/*", "sys/*", "dev/*", "var/cache/apt/*", "var/lib/apt/lists/*", "usr/share/doc/*")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
USER = "10001:10001"
TOOLS = ("buildah", "debootstrap", "unshare", "setpriv", "chroot", "mount")


def why_not() -> str | None:
    """Say what is missing for building images here."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "the builder and debootstrap need root here"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "no mount may be made here" if done.returncode else None


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    text: str
    """What it wrote, errors included."""


def call(*command: str, variables: dict[str, str] | None = None, cwd: Path | None = None) -> Done:
    """Run a command to its end."""
    done = subprocess.run(
        command, env=variables, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return Done(done.returncode, done.stdout.decode("utf-8", "replace"))


def must(*command: str, variables: dict[str, str] | None = None) -> str:
    """Run a command that has to succeed, and return what it wrote."""
    done = call(*command, variables=variables)
    assert done.code == 0, f"{' '.join(command)}\n{done.text[-4000:]}"
    return done.text.strip()


def base_archive() -> Path:
    """Return the root folder of a small Debian with Python, as an archive."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    key = hashlib.sha256("\n".join([REVISION, suite, *BASE_PACKAGES, *NOT_IN_THE_BASE]).encode()).hexdigest()[:16]
    place = cache_folder().parent / "containers" / f"base-{key}.tar"
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if not place.exists():
            _bootstrap(suite, place)
    return place


def _bootstrap(suite: str, place: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        options = ["--variant=minbase", f"--include={','.join(BASE_PACKAGES)}"]
        # What it mounts goes with the name space, whatever happens to it.
        must("unshare", "--mount", "debootstrap", *options, suite, f"{name}/root", *_mirror(suite))
        excluded = [f"--exclude=./{pattern}" for pattern in NOT_IN_THE_BASE]
        must("tar", "--one-file-system", "-C", f"{name}/root", *excluded, "-cf", f"{place}.new", ".")
    os.replace(f"{place}.new", place)


def _mirror(suite: str) -> list[str]:
    """Return where this machine gets the packages of a suite from, if it says so."""
    form = "$(CODENAME) $(COMPONENT) $(REPO_URI)"
    lines = call("apt-get", "indextargets", "--format", form, "Created-By: Packages").text.splitlines()
    return [line.split()[2] for line in lines if line.split()[:2] == [suite, "main"]][:1]


def pip_settings() -> dict[str, str]:
    """Return how this machine's pip finds packages, as far as it makes sense inside an image."""
    found = {}
    for line in must("python3", "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        found[name.split(".")[-1]] = str(ast.literal_eval(value))
    kept = {name: found[name] for name in ("index-url", "trusted-host", "proxy", "default-timeout") if name in found}
    return {**kept, "cert": CERTIFICATES}


class Builder:
    """buildah with a storage of its own."""

    def __init__(self, work: Path) -> None:
        self._work = work
        downloads = cache_folder().parent / "containers" / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        # buildah keeps cache mounts here below TMPDIR, and leaves other things beside them when it is killed.
        (work / "tmp").mkdir()
        (work / "tmp/buildah-cache").symlink_to(downloads)
        configuration = work / "storage.conf"
        # By its configuration the storage is found by every program that shares it.
        self.variables = {**os.environ, "TMPDIR": f"{work}/tmp", "CONTAINERS_STORAGE_CONF": str(configuration)}
        for driver in ("overlay", "vfs"):
            folders = f'graphroot = "{work}/{driver}"\nrunroot = "{work}/{driver}-run"\n'
            configuration.write_text(f'[storage]\ndriver = "{driver}"\n{folders}')
            if call("buildah", "info", variables=self.variables).code == 0:
                break
        self._secrets()

    def _secrets(self) -> None:
        settings = pip_settings()
        lines = [f"{name} = {value}" for name, value in settings.items()]
        (self._work / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
        index = f'[[index]]\nurl = "{settings["index-url"]}"\ndefault = true\n' if "index-url" in settings else ""
        (self._work / "uv.toml").write_text(f"native-tls = true\n{index}")

    def buildah(self, *words: str) -> str:
        """Run buildah, which has to succeed."""
        return must("buildah", *words, variables=self.variables)

    def add(self, archive_or_file: Path, place: str, tag: str) -> None:
        """Make an image of one archive, or of one file."""
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, str(archive_or_file), place)
        self.buildah("commit", "--quiet", container, tag)
        self.buildah("rm", container)

    def add_uv(self) -> None:
        """Make an image with uv's program alone, as its makers publish one."""
        with zipfile.ZipFile(bring(UV)) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
            (self._work / "uv").write_bytes(archive.read(name))
        (self._work / "uv").chmod(0o755)
        self.add(self._work / "uv", "/uv", "localhost/uv")

    def build(self, text: str, tag: str, context: Path, **arguments: str) -> Done:
        """Build an image from the text of a Dockerfile."""
        file = self._work / f"{tag}.Dockerfile"
        file.write_text(text)
        words = ["--isolation", "chroot", "--layers", "--pull-never", "--file", str(file), "--tag", f"localhost/{tag}"]
        words += [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        words += ["--secret", f"id=pip,src={self._work}/pip.conf", "--secret", f"id=uv,src={self._work}/uv.toml"]
        words += ["--volume", f"{self._certificates()}:{CERTIFICATES}:ro"]
        return call("buildah", "build", *words, str(context), variables=self.variables)

    def _certificates(self) -> str:
        return os.environ.get("SSL_CERT_FILE", CERTIFICATES)

    def config(self, tag: str) -> dict[str, object]:
        """Return what an image says of how it is run."""
        document = json.loads(self.buildah("inspect", "--type", "image", f"localhost/{tag}"))
        config: dict[str, object] = document["OCIv1"]["config"]
        return config

    @contextmanager
    def mounted(self, tag: str) -> Iterator[Path]:
        """Give the root folder of a container of an image; it can be written."""
        container = self.buildah("from", "--pull-never", f"localhost/{tag}")
        try:
            yield Path(self.buildah("mount", container))
        finally:
            self.buildah("rm", container)

    def close(self) -> None:
        """Remove every container and its mounts, then the storage."""
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")
        # The overlay driver mounts its own folder on itself, and leaves it so.
        call("umount", str(self._work / "overlay/overlay"))
        shutil.rmtree(self._work)


def run_inside(root: Path, script: str, *variables: str) -> Done:
    """Run a script inside a root folder that is read-only, as the image's user."""
    inner = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && root=$1 && shift && exec chroot "$root" "$@"'
    return call("unshare", "--mount", "sh", "-c", inner, "sh", str(root), *_as_user(*variables), "sh", "-c", script)


def run_beside(root: Path, *command: str) -> Done:
    """Run a command of this machine while a root folder is read-only."""
    inner = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    return call("unshare", "--mount", "sh", "-c", inner, "sh", str(root), *command)


def _as_user(*variables: str) -> list[str]:
    user, group = USER.split(":")
    command = ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", "--no-new-privs"]
    return [*command, "env", "--ignore-environment", *variables]
