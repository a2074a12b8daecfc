"""The software bill of materials inside a wheel (PEP 770, CycloneDX 1.6)."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import (
    Commit,
    Component,
    ComponentType,
    Patch,
    PatchClassification,
    Pedigree,
)
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

if TYPE_CHECKING:
    from builder.native import NativeResult
    from builder.pin import Pin
    from builder.recipe import Recipe
    from builder.wheel.record import BuildRecord

_SPACE: Final = uuid.UUID("5b0f3c1e-86cc-4c86-8686-736d38362d62")


def sbom(record: BuildRecord, pin: Pin, native: NativeResult, *, recipe: Recipe) -> bytes:
    """The bill of one wheel: upstream's source and wheel, the patches, every file beyond them."""
    root = Component(
        name=record.distribution,
        version=record.version,
        type=ComponentType.FRAMEWORK,
        bom_ref="wheel",
        licenses=[LicenseExpression(recipe.license)],
        purl=PackageURL("pypi", None, record.distribution, record.version),
        pedigree=Pedigree(
            ancestors=[
                Component(
                    name=record.distribution,
                    version=record.upstream_version,
                    type=ComponentType.FRAMEWORK,
                    bom_ref="upstream",
                    purl=PackageURL("pypi", None, record.distribution, record.upstream_version),
                )
            ],
            commits=[Commit(uid=record.commit)],
            patches=[Patch(type=PatchClassification.UNOFFICIAL) for _ in record.patches],
            notes="; ".join(f"{p.id} sha256:{p.sha256}" for p in record.patches) or None,
        ),
        properties=[
            Property(name="sm86:arch", value=record.arch),
            Property(name="sm86:inputs", value=record.inputs),
            Property(name="sm86:source", value=f"{record.source} ({record.strength})"),
        ],
    )
    bom = Bom(serial_number=uuid.uuid5(_SPACE, record.inputs), components=[])
    bom.metadata.timestamp = datetime.fromtimestamp(pin.epoch, tz=UTC)
    bom.metadata.component = root
    for artifact in filter(None, (pin.sdist, pin.wheel)):
        bom.components.add(
            Component(
                name=artifact.file,
                version=pin.version,
                type=ComponentType.FILE,
                bom_ref=artifact.file,
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=artifact.sha256)],
            )
        )
    for extra in native.extras:
        bom.components.add(
            Component(
                name=extra.name,
                type=ComponentType.LIBRARY if extra.compiled else ComponentType.FILE,
                bom_ref=extra.name,
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=extra.sha256)],
                properties=[
                    Property(name="sm86:origin", value=extra.origin),
                    Property(name="sm86:from", value=native.wheel or pin.sdist.file),
                    *(
                        [Property(name="sm86:cut-from", value=extra.stream.upstream_sha256)]
                        if extra.stream and extra.stream.upstream_sha256
                        else []
                    ),
                    *(
                        Property(name=f"sm86:bytes:{arch}", value=str(size))
                        for arch, size in sorted(extra.archs.items())
                    ),
                ],
            )
        )
    bom.register_dependency(root, list(bom.components))
    plain = json.loads(JsonV1Dot6(bom).output_as_string())
    return (json.dumps(plain, indent=1, sort_keys=True) + "\n").encode()
