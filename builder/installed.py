"""Whether an environment still holds our wheel, with every patch in it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, ValidationError

from builder.audit.patches import defines
from builder.errors import AuditError, UsageError
from builder.run import ProgramError, run
from builder.store import file_sha256
from builder.wheel.record import BUILD_RECORD, BuildRecord


class Installed(BaseModel):
    """What an environment holds of an engine.

    Attributes:
        site_packages: where it is installed.
        version: the installed version.
        record: its build record.
        patches: ids of the patches found alive.
    """

    model_config = ConfigDict(frozen=True)

    site_packages: str
    version: str
    record: BuildRecord
    patches: tuple[str, ...]


def site_packages(python: str | Path | None) -> Path:
    """The site-packages folder of an interpreter (this one if None).

    Raises:
        UsageError: the interpreter does not run.
    """
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    try:
        return Path(run([python or sys.executable, "-I", "-c", code], timeout=60).text)
    except ProgramError as error:
        raise UsageError(
            f"{python} does not run: {error.done.last_words}", fix="check it"
        ) from error


def verify_installed(distribution: str, *, site: Path) -> Installed:
    """Check an installation against the build record that it carries.

    Raises:
        AuditError: nothing is installed, something else has replaced our wheel, or a patched
            file is not the series' result.
    """
    wanted = canonicalize_name(distribution)
    found = [
        path
        for path in sorted(site.glob("*.dist-info"))
        if canonicalize_name(path.name.removesuffix(".dist-info").split("-")[0]) == wanted
    ]
    if not found:
        raise AuditError(
            f"{distribution} is not installed in {site}",
            fix="install the wheel's requirements file",
        )
    if len(found) > 1:
        raise AuditError(
            f"{distribution} is installed {len(found)} times in {site}",
            fix=f"pip uninstall {distribution}, twice, then install again",
        )
    info = found[0]
    version = info.name.removesuffix(".dist-info").partition("-")[2]
    try:
        record = BuildRecord.model_validate_json((info / BUILD_RECORD).read_bytes())
    except (FileNotFoundError, ValidationError) as error:
        raise AuditError(
            f"{distribution} {version} in {site} is not one of ours: another installation has"
            " replaced it",
            fix="install the wheel's requirements file again, and pin the full version",
        ) from error
    dead: dict[str, str] = {}
    for file in record.files:
        path = site / file.path
        actual = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        if actual != file.sha256:
            dead |= dict.fromkeys(file.patches, file.path)
    for module in record.modules:
        path = site / module.path
        if not path.is_file() or file_sha256(path) != module.sha256:
            raise AuditError(
                f"{distribution} {version}: {module.path} was changed since or is missing",
                fix="install the wheel's requirements file again with --force-reinstall",
            )
    for live in record.live:
        path = site / live.file
        if live.patch not in dead and not (
            path.is_file() and defines(path.read_bytes(), live.symbol)
        ):
            dead[live.patch] = live.file
    if dead:
        patch, where = next(iter(dead.items()))
        raise AuditError(
            f"{distribution} {version}: {where} was changed since: {patch} is not live",
            fix="install the wheel's requirements file again with --force-reinstall",
        )
    return Installed(
        site_packages=str(site), version=version, record=record,
        patches=tuple(patch.id for patch in record.patches),
    )  # fmt: skip
