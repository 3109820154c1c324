"""The verbs that tell what stopped a server, and what will: one function each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from patchkit.catalog import Catalog
from patchkit.environment import Environment
from patchkit.errors import EnvironmentInvalid, LogUnreadable
from patchkit.findings import Finding, from_error
from patchkit.report import Report, report_targets
from patchkit.survey import Survey

if TYPE_CHECKING:
    from patchkit.gates.gate import Subject


def explain(catalog: Catalog, environment: Callable[[], Environment], log: BinaryIO) -> Report:
    """Recognise known errors in a log, and say which patch cures each and its state here; reads only.

    The environment is asked for only when something was recognised: a log may be from anywhere.
    """
    from patchkit.symptoms import Recogniser

    recogniser = Recogniser(catalog.headers.values())
    try:
        recogniser.read(log)
    except OSError as error:
        raise LogUnreadable(f"the log cannot be read: {error.strerror}", "name a file, or - for the input") from error
    symptoms = recogniser.symptoms
    report = Report("explain", not symptoms, symptoms=symptoms, lines=recogniser.lines)
    cures = sorted({symptom.cure for symptom in symptoms if symptom.cure})
    if not cures:
        return report
    try:
        survey = Survey(catalog, environment())
    except EnvironmentInvalid as error:
        return report._replace(findings=(from_error(error),))
    states = tuple(survey.states(cures))
    return report._replace(environment=survey.environment, targets=report_targets(survey), patches=states)


def preflight(
    catalog: Catalog,
    environment: Environment,
    model: Path,
    draft: Path | None,
    *,
    tokens: int | None = None,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    is_strict: bool = False,
) -> Report:
    """Say whether a model and a drafter will pass the gates of the installed vLLM; reads only.

    ``is_strict``: a gate of which nothing can be said counts like one that fails.
    """
    from patchkit.gates.checkpoint import open_checkpoint
    from patchkit.gates.verdict import give_verdict

    target = open_checkpoint(model)
    subject = _subject(environment)
    if subject is None:
        return _not_installed(environment)
    subject.target = target
    subject.draft = open_checkpoint(draft) if draft is not None else None
    subject.speculative_tokens = tokens
    subject.tensor_parallel, subject.pipeline_parallel = tensor_parallel, pipeline_parallel
    verdict = give_verdict(subject, catalog.headers)
    survey = Survey(catalog, environment)
    states = tuple(survey.states(sorted({gate.cure for gate in verdict.failed if gate.cure})))
    counted = [*verdict.failed, *(verdict.unknown if is_strict else ())]
    findings = [
        Finding(
            "gate-closed" if gate in verdict.failed else "gate-unknown",
            gate.message,
            gate.hint or (f"patchkit apply {gate.cure}" if gate.cure else "no patch of this catalog opens it"),
            gate.cure,
            gate.evidence[0].path if gate.evidence else None,
        )
        for gate in counted
    ]
    return Report(
        "preflight",
        not findings,
        environment,
        report_targets(survey),
        states,
        tuple(findings),
        verdict=verdict,
    )


def preflight_models(catalog: Catalog, environment: Environment) -> Report:
    """Say which multimodal classes of the installed vLLM would stop at the image token; reads only."""
    from patchkit.gates.models import judge_models
    from patchkit.gates.verdict import Verdict

    subject = _subject(environment)
    if subject is None:
        return _not_installed(environment)
    verdict = Verdict(models=tuple(judge_models(subject)))
    survey = Survey(catalog, environment)
    return Report("preflight", True, environment, report_targets(survey), verdict=verdict)


def _subject(environment: Environment) -> Subject | None:
    """Return the installed code, ready to be asked about; None where there is no vLLM."""
    from patchkit.gates.checkpoint import Checkpoint
    from patchkit.gates.code import Code
    from patchkit.gates.gate import Subject
    from patchkit.gates.registry import Registry

    code = Code(environment.sites, environment.root)
    if code.module("vllm") is None:
        return None
    return Subject(code, Registry(code), Checkpoint(Path("config.json"), {}, ()))


def _not_installed(environment: Environment) -> Report:
    where = ", ".join(map(str, environment.sites)) or "this environment"
    finding = Finding("not-installed", f"there is no vLLM in {where}", "name its environment with --python or --site")
    return Report("preflight", False, environment, findings=(finding,))
