"""The transaction: every change of a plan, or none, also after a kill at any point."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from patchkit.bytecode import find_bytecode
from patchkit.catalog import Catalog
from patchkit.errors import PatchkitError, PathEscape, RollbackFailed, TransactionError
from patchkit.journal import FOLDER, Applied, Journal, Move, Pending, own_version, read_journal, read_object
from patchkit.lock import locked
from patchkit.paths import below, inside, make_folder, open_folder, read_regular, real, resolve_within
from patchkit.plan import Change
from patchkit.record import digest
from patchkit.replacement import remove, stage, swap, sync_folder, write_whole

_PERMISSION = "run as the owner of the site folder, on a file system that can be written"


class Gate:
    """Two moments at which somebody else may take a transaction back, by raising an error; here nobody does."""

    def written(self) -> None:
        """Return when every file is written and read back, before the moment of commitment."""

    def finished(self) -> None:
        """Return after the moment of commitment, while the locks are held and the bytes before are kept."""


class Transaction:
    """Writes to some site folders while it holds their locks; leaves each with a journal, or without a trace."""

    def __init__(self, sites: Iterable[Path], pycache_prefix: Path | None, root: Path | None = None) -> None:
        self._sites = tuple(sorted(set(sites)))
        self._pycache_prefix, self._root = pycache_prefix, root
        self._folders = {site: self._inside(real(site)) / FOLDER for site in self._sites}

    @contextmanager
    def held(self) -> Iterator[Transaction]:
        """Take the locks, take back what an interrupted run left, and tidy up in the end."""
        try:
            with locked([folder.parent for folder in self._folders.values()]):
                try:
                    self.recover()
                    yield self
                except BaseException:
                    with suppress(OSError, PatchkitError):
                        self._tidy()
                    raise
                self._tidy()
        except OSError as error:
            raise _refused(error) from error

    def recover(self) -> None:
        """Roll an unfinished transaction back, or on where its leader is committed already."""
        pending = [site for site in self._sites if read_journal(site).pending is not None]
        followers = [site for site in pending if not _leads(site)]
        for site in followers + [site for site in pending if site not in followers]:
            self._settle(site)

    def commit(
        self,
        changes: Collection[Change],
        obsolete: Mapping[Path, Collection[str]],
        catalog: Catalog,
        gate: Gate | None = None,
    ) -> None:
        """Write every change and drop obsolete journal entries; on any failure everything is as before."""
        identity, gate = secrets.token_hex(8), gate or Gate()
        intended: dict[Path, Journal] = {}
        for change in changes:
            self._inside(change.place)
            self._refuse_bytecode_elsewhere(change)
        try:
            for site in self._sites:
                journal = read_journal(site)
                kept = {path: entry for path, entry in journal.files.items() if path not in obsolete[site]}
                here = [change for change in changes if change.site == site]
                self._intend(site, journal, identity, here, _files(kept, here, catalog))
            self._replace(changes, identity)
            gate.written()
            intended = {site: read_journal(site) for site in self._sites}
            for site in self._sites:
                self._finish(site)
        except BaseException as error:
            self._roll_back(error)
            if read_journal(self._sites[0]).last != identity or not isinstance(error, OSError):
                raise
            # The failure came after the moment of commitment, and recovery went on from there.
        try:
            gate.finished()
        except BaseException as error:
            self._take_back(intended, error)
            raise

    def _replace(self, changes: Collection[Change], identity: str) -> None:
        """Stage every file, put all in place, and read them back."""
        for change in changes:
            temporary = _temporary(change.place, identity)
            stage(change.place, temporary, change.after, change.after_link, self._root)
        for change in changes:
            swap(_temporary(change.place, identity), change.place)
            self._drop_bytecode(change.site, *_spellings(change))
        for folder in {change.place.parent for change in changes}:
            sync_folder(folder)
        for change in changes:
            if digest(read_regular(inside(change.place, self._root))) != change.after_sha256:
                raise TransactionError(f"{change.place} reads back differently", "check the disk")

    def _intend(
        self, site: Path, journal: Journal, identity: str, changes: list[Change], files: dict[str, Applied]
    ) -> None:
        """Put on disk what is needed to go back, and what is about to happen, in this order."""
        folder = self._folders[site]
        with open_folder(folder) as held:
            make_folder("objects", held)
        for change in changes:
            mode = os.stat(inside(change.place, self._root)).st_mode & 0o644  # no more may read the copy
            for data in (change.pristine, change.before):
                if read_object(site, digest(data)) is None:
                    write_whole(folder / "objects" / digest(data), data, mode)
        for made in (folder / "objects", folder, folder.parent):
            sync_folder(made)
        moves = {change.path: Move(change.before_sha256, change.after_sha256, change.before_link) for change in changes}
        pending = Pending(identity, str(real(self._sites[0])), moves, files)
        self._write_journal(site, journal._replace(pending=pending))

    def _settle(self, site: Path) -> None:
        journal, pending = _unfinished(site)
        if not _leads(site) and _committed(pending):
            self._finish(site)
            return
        for path, move in pending.moves.items():
            place = self._inside(resolve_within(site, path))
            temporary = _temporary(place, pending.id)
            with suppress(FileNotFoundError), open_folder(place.parent) as folder:
                remove(folder, temporary.name)
            found = inside(place, self._root)
            if found.exists() and digest(read_regular(found)) == move.after != move.before:
                data = read_object(site, move.before)
                if data is None:
                    raise RollbackFailed(f"{site / FOLDER} has lost the bytes of {path}", "reinstall the distribution")
                stage(place, temporary, data, move.link, self._root)
                swap(temporary, place)
                sync_folder(place.parent)
            with suppress(OSError):  # what may not be removed was there before, and the file has another time now
                self._drop_bytecode(site, place, site / path)
        self._write_journal(site, journal._replace(pending=None))

    def _finish(self, site: Path) -> None:
        """Mark a transaction as committed: the moment after which it is not rolled back."""
        _, pending = _unfinished(site)
        self._write_journal(site, Journal(pending.files, None, pending.id))

    def _take_back(self, intended: Mapping[Path, Journal], cause: BaseException) -> None:
        """Undo what is committed: the intent is put on disk again, the leader's last, for its journal decides."""
        try:
            for site in reversed(self._sites):
                self._write_journal(site, intended[site])
        except OSError as error:
            raise RollbackFailed(
                f"what was written stays, for it could not be taken back ({error})", "run patchkit revert here"
            ) from cause
        self._roll_back(cause)

    def _roll_back(self, cause: BaseException) -> None:
        try:
            self.recover()
        except (OSError, PatchkitError) as error:
            raise RollbackFailed(
                f"the write failed ({cause}) and could not be taken back ({error})",
                "mend the cause, then run patchkit apply or revert again: it takes the unfinished run back first",
            ) from error

    def _tidy(self) -> None:
        """Remove objects that nothing refers to, and the folder when nothing is applied."""
        for site in self._sites:
            journal = read_journal(site)
            if journal.pending is None:
                self._tidy_site(site, journal)

    def _tidy_site(self, site: Path, journal: Journal) -> None:
        try:
            folder = self._folders[site]
            kept = {entry.pristine for entry in journal.files.values()}
            with suppress(FileNotFoundError), open_folder(folder / "objects") as objects:
                for name in os.listdir(objects):
                    if name not in kept:
                        remove(objects, name)
            if not journal.files:
                with open_folder(folder) as held:
                    for name in (".journal.json.new", "journal.json", "lock"):
                        remove(held, name)
                    with suppress(OSError):  # another run may have put its own lock there meanwhile
                        os.rmdir("objects", dir_fd=held)
                with open_folder(folder.parent) as held, suppress(OSError):
                    os.rmdir(folder.name, dir_fd=held)
                sync_folder(folder.parent)
        except OSError as error:
            message = f"the files are as asked, but {site / FOLDER} could not be tidied: {error.strerror}"
            raise TransactionError(message, _PERMISSION) from error

    def _inside(self, place: Path) -> Path:
        """Return a real path, refusing one out of the root: the site folder itself may have become a link."""
        if self._root is not None:
            below(place, self._root)
        return place

    def _drop_bytecode(self, site: Path, *spellings: Path) -> None:
        for bytecode in find_bytecode(spellings, self._pycache_prefix, self._root):
            folder = real(bytecode.parent)
            if not self._is_ours(folder, site):
                continue
            with open_folder(folder) as held:
                remove(held, bytecode.name)
            with suppress(OSError), open_folder(folder.parent) as held:  # other modules have bytecode there, too
                os.rmdir(folder.name, dir_fd=held)

    def _is_ours(self, folder: Path, site: Path) -> bool:
        """Tell whether a folder of bytecode is where Python makes one, and not anywhere that a link leads to."""
        roots = [self._folders[site].parent, self._root, self._pycache_prefix]
        return any(folder.is_relative_to(real(root)) for root in roots if root is not None)

    def _refuse_bytecode_elsewhere(self, change: Change) -> None:
        """Refuse to patch a file whose bytecode is where none may be removed, since it would hide the patch."""
        for bytecode in find_bytecode(_spellings(change), self._pycache_prefix, self._root):
            if not self._is_ours(real(bytecode.parent), change.site):
                message = f"{bytecode.parent} leads out of {change.site} through a link, and has its bytecode"
                raise PathEscape(message, f"remove {bytecode.parent}")

    def _write_journal(self, site: Path, journal: Journal) -> None:
        write_whole(self._folders[site] / "journal.json", journal.to_bytes())
        sync_folder(self._folders[site])


def _spellings(change: Change) -> tuple[Path, Path]:
    """Return the paths by which Python may know a file."""
    return change.place, change.site / change.path


def _files(kept: dict[str, Applied], changes: list[Change], catalog: Catalog) -> dict[str, Applied]:
    """Return what the journal says of a site once the changes are committed."""
    files = dict(kept)
    for change in changes:
        former = files.pop(change.path, None)
        if change.patches:
            files[change.path] = Applied(
                pristine=change.pristine_sha256,
                sha256=change.after_sha256,
                patches={name: catalog.headers[name].revision for name in sorted(change.patches)},
                patchkit=own_version(),
                written=int(time.time()),
                link=former.link if former else change.before_link,
            )
    return files


def _temporary(place: Path, identity: str) -> Path:
    return place.with_name(f".{place.name}.patchkit-{identity}")


def _unfinished(site: Path) -> tuple[Journal, Pending]:
    """Return a journal with the transaction in it that is not finished, which was there a moment ago."""
    journal = read_journal(site)
    if journal.pending is None:
        message = f"{site / FOLDER / 'journal.json'} was changed by something that does not hold the lock"
        raise TransactionError(message, "see that nobody else changes the tree, then run the command again")
    return journal, journal.pending


def _leads(site: Path) -> bool:
    pending = read_journal(site).pending
    return pending is not None and pending.leader == str(real(site))


def _committed(pending: Pending) -> bool:
    """Tell whether the leader of a transaction has marked it as committed."""
    return read_journal(Path(pending.leader)).last == pending.id


def _refused(error: OSError) -> TransactionError:
    where = f"{error.filename}: " if error.filename else ""
    return TransactionError(f"nothing was changed: {where}{error.strerror or error}", _PERMISSION)
