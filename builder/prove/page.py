"""A prove report as one HTML page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import itertools
import json
import math
import re
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from builder.prove.result import NotRun, ProofRun, ProveReport

_STYLE: Final = """
:root { color-scheme: light dark; --red: #c0392b; --green: #1e8449; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left;
         vertical-align: top; overflow-wrap: anywhere; }
.red { color: var(--red); } .green { color: var(--green); } figure { margin: 1rem 0; }
pre { overflow-x: auto; background: #8881; padding: .6rem; } .bad { font-weight: bold; }
"""
_KEYS: Final = re.compile(r"(?P<what>.+) key std (?P<std>[\d.]+)$")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 260, 60, 36


def page(report: ProveReport) -> str:
    """The report as HTML.

    Proofs that ran stand first, red, green and planted faults beside each other; then those that
    need a GPU, with what a card said when they were run last and a plot of error against key scale.
    """
    title = f"{report.engine} {report.version} for {report.arch}: what is proven"
    bad = len(report.bad)
    head = f"{len(report.runs)} runs, {bad or 'none'} of them not as they must be."
    rows = [_row(list(runs)) for _, runs in itertools.groupby(report.runs, _proof)]
    gpu = "".join(_gpu(one) for one in report.not_run)
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n"
        f"<p>{head} How: {escape(report.emulated)}.</p>\n"
        "<table><thead><tr><th>proof<th>without the patch<th>with it<th>planted faults"
        f"</thead><tbody>\n{''.join(rows)}</tbody></table>\n"
        + (f"<h2>Not run here: these need a GPU</h2>\n{gpu}" if gpu else "")
        + "</html>\n"
    )


def _proof(run: ProofRun) -> tuple[str, str]:
    return run.patch, run.proof


def _row(runs: list[ProofRun]) -> str:
    cells = {"red": "", "green": "", "installed": ""}
    mutants = [run for run in runs if run.subject == "mutant"]
    for run in runs:
        if run.subject != "mutant":
            mark = "" if run.ok else " class=bad"
            cells[run.subject] = f"<span{mark}>{escape(run.verdict)}</span>"
    caught = sum(run.ok for run in mutants)
    faults = "".join(
        f"<li{'' if run.ok else ' class=bad'}>{escape(run.mutant)}: {escape(run.verdict)}"
        for run in mutants
    )
    listed = f"<details><summary>{caught} of {len(mutants)} noticed</summary><ul>{faults}</ul>"
    first = runs[0]
    return (
        f"<tr><td>{escape(first.patch)}<br>{escape(first.proof)}"
        f"<td class=red>{cells['red']}<td class=green>{cells['green'] or cells['installed']}"
        f"<td>{listed + '</details>' if mutants else ''}\n"
    )


def _gpu(one: NotRun) -> str:
    recorded = one.recorded
    card = recorded.get("device") or recorded.get("card") or "a card"
    plot = _plot(
        {
            side: _series(recorded.get(side, {}).get("figures", {}))
            for side in ("red", "green")
            if isinstance(recorded.get(side), dict)
        }
    )
    return (
        f"<h3>{escape(one.patch)}: {escape(one.proof)}</h3>\n<p>{escape(one.shows)}. Recorded on"
        f" {escape(str(card))}, with <code>{escape(str(recorded.get('command', '')))}</code>.</p>\n"
        f"{plot}<details><summary>the record</summary><pre>"
        f"{escape(json.dumps(recorded, indent=1, sort_keys=True))}</pre></details>\n"
    )


def _series(figures: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Errors by standard deviation of the keys, for each kind that has several."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, value in figures.items():
        named = _KEYS.match(name)
        if named is not None and isinstance(value, int | float) and value > 0:
            found.setdefault(named["what"], []).append((float(named["std"]), float(value)))
    return {what: sorted(points) for what, points in found.items() if len(points) > 1}


def _plot(sides: Mapping[str, Mapping[str, list[tuple[float, float]]]]) -> str:
    """An SVG: relative error of attention (log) against the keys' scale (log 2)."""
    points = [p for lines in sides.values() for line in lines.values() for p in line]
    if not points:
        return ""
    xs, ys = [math.log2(x) for x, _ in points], [math.log10(y) for _, y in points]
    low, high = math.floor(min(ys) * 2) / 2, math.ceil(max(ys) * 2) / 2

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log2(x) - min(xs)) / ((max(xs) - min(xs)) or 1)
        up = (math.log10(y) - low) / ((high - low) or 1)
        return _LEFT + across * (_WIDTH - _LEFT - 130), (_HEIGHT - _BOTTOM) * (1 - up) + 8

    label = "relative error of attention against key scale"
    box = f"viewBox='0 0 {_WIDTH} {_HEIGHT + 12}' width={_WIDTH}"
    parts = [f"<svg role=img {box} aria-label='{label}'>"]
    parts += _axes(sorted({x for x, _ in points}), low, high, place)
    for side, lines in sides.items():
        for what, line in lines.items():
            at = [place(x, y) for x, y in line]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
            parts.append(
                f"<polyline class={side} fill=none stroke=currentColor stroke-width=2"
                f" points='{path}'/>"
                f"<text class={side} fill=currentColor font-size=11 x={at[-1][0] + 6:.0f}"
                f" y={at[-1][1] + 4:.0f}>{escape(what)}, {side}</text>"
            )
    caption = "Relative error of attention against the standard deviation of the keys"
    return f"<figure>{''.join(parts)}</svg><figcaption>{caption}.</figcaption></figure>\n"


def _axes(stds: Iterable[float], low: float, high: float, place: Any) -> list[str]:
    """Ticks: the scales that were measured, and half decades of the error."""
    stds = list(stds)
    parts = []
    for x in stds:
        across, _ = place(x, 10**low)
        parts.append(
            f"<text fill=currentColor font-size=11 text-anchor=middle x={across:.0f}"
            f" y={_HEIGHT + 4}>{x:g}</text>"
        )
    for step in range(round((high - low) * 2) + 1):
        value = 10 ** (low + step / 2)
        _, up = place(stds[0], value)
        parts.append(
            f"<line stroke=currentColor stroke-opacity=.2 x1={_LEFT} x2={_WIDTH - 130} y1={up:.1f}"
            f" y2={up:.1f} /><text fill=currentColor font-size=11 text-anchor=end x={_LEFT - 6}"
            f" y={up + 4:.0f}>{value:.2g}</text>"
        )
    return parts
