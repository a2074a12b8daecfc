"""What proving gives: one result for each proof on each tree."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Subject = Literal["red", "green", "mutant", "installed"]


class ProofRun(BaseModel):
    """One proof on one tree.

    Attributes:
        patch: the patch.
        proof: the proof's id.
        subject: the tree without the patch, with it, with a planted fault, or an installation.
        mutant: id of the planted fault.
        ok: whether it showed what it must.
        verdict: in one line, what was expected and what came.
        figures: what the script measured.
        failures: what did not hold, in the script's words.
        reached: symbols of the patch that ran or were compiled.
        seconds: wall-clock time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    patch: str
    proof: str
    subject: Subject
    mutant: str = ""
    ok: bool
    verdict: str
    figures: dict[str, Any]
    failures: tuple[str, ...]
    reached: tuple[str, ...]
    seconds: float


class NotRun(BaseModel):
    """A proof that needs a GPU and was not run here.

    Attributes:
        patch: the patch.
        proof: the proof's id.
        shows: what it shows.
        recorded: what a card said when it was run last: its JSON.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    patch: str
    proof: str
    shows: str
    recorded: dict[str, Any]


class ProveReport(BaseModel):
    """Every run, and what they ran on.

    Attributes:
        schema_version: version of this report's shape.
        engine: the engine.
        version: the pin.
        arch: the architecture.
        emulated: how code for that architecture was run on this machine.
        runs: the results.
        not_run: proofs that need a GPU, each with its recorded result.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    engine: str
    version: str
    arch: str
    emulated: str
    runs: tuple[ProofRun, ...]
    not_run: tuple[NotRun, ...] = ()

    @property
    def bad(self) -> tuple[ProofRun, ...]:
        """The runs that did not show what they must."""
        return tuple(one for one in self.runs if not one.ok)
