"""The run as one HTML page that needs nothing else: verdicts first, then reds, changes, history."""

from html import escape
from pathlib import Path

from .history import GREEN, NOT_RUN, RED, Change, RunRecord, changes, commits_between, skipped
from .results import ERROR, FAIL, SKIP, Result

RUNS_SHOWN = 30
WORD = {GREEN: "Green", RED: "Red", NOT_RUN: "Could not run"}
STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or 1000 <= abs(value) < 1e12 else f"{value:.4g}"


def _time(text: str) -> str:
    """Dates and durations: all that may differ between a run and the same run after an interruption."""
    return f"<time>{escape(text)}</time>"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value / 60:.0f} min"


def sparkline(points: list[tuple[float, str]], width: int = 260, height: int = 44) -> str:
    """(value, verdict) of past runs, oldest first, as inline SVG; the last one is the run at hand."""
    values = [v for v, _ in points]
    low, high = min(values), max(values)
    pad = 6

    def x(i: int) -> float:
        return width / 2 if len(points) == 1 else pad + i * (width - 2 * pad) / (len(points) - 1)

    def y(v: float) -> float:
        return height / 2 if high == low else height - pad - (v - low) * (height - 2 * pad) / (high - low)

    line = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, (v, _) in enumerate(points))
    dots = "".join(f'<circle cx="{x(i):.1f}" cy="{y(v):.1f}" r="{4 if i + 1 == len(points) else 3}" '
                   f'class="{verdict.lower()}"><title>{_number(v)} ({verdict})</title></circle>'
                   for i, (v, verdict) in enumerate(points))
    label = f"{len(points)} runs, least {_number(low)}, most {_number(high)}, now {_number(values[-1])}"
    return (f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
            f'<polyline points="{line}"/>{dots}</svg>')


def _banner(run: RunRecord, past: list[RunRecord]) -> str:
    strip = "".join(f'<i class="{ {GREEN: "pass", RED: "fail", NOT_RUN: "error"}[r.verdict]}" '
                    f'title="{escape(r.commit[:12])}: {r.verdict}"></i>'
                    for r in [*past, run][-RUNS_SHOWN:])
    kind = {GREEN: "pass", RED: "fail", NOT_RUN: "error"}[run.verdict]
    skips = f", {len(run.of(SKIP))} skipped" if run.of(SKIP) else ""
    commit = escape(run.commit[:12] + run.commit[40:]) or "no commit"
    return (f'<header class="{kind}"><p class="word">{WORD[run.verdict]}{skips}</p><p>{escape(run.summary)}</p>'
            f'<p class="facts">commit <code>{commit}</code>, {_time(run.started)}, {escape(run.machine)}</p>'
            f'<p class="strip" aria-label="verdicts of the last runs, the newest at the right">{strip}</p></header>')


def _matrix(run: RunRecord) -> str:
    checks = list(dict.fromkeys(r.check for r in run.results))
    rows = []
    for model in dict.fromkeys(r.model for r in run.results):
        verdicts = {r.verdict for r in run.results if r.model == model}
        if verdicts == {SKIP}:
            rows.append(f'<tr><th scope=row>{escape(model)}</th><td class="cell skip whole" colspan={len(checks)}>'
                        f"SKIP, every check</td></tr>")
            continue
        cells = ""
        for check in checks:
            result = run.result(model, check)
            word = result.verdict if result else ""
            title = f' title="{escape(result.message)}"' if result and result.message else ""
            cells += f'<td class="cell {word.lower()}"{title} data-check="{check}">{word}</td>'
        rows.append(f"<tr><th scope=row>{escape(model)}</th>{cells}</tr>")
    head = "".join(f"<th scope=col>{c}</th>" for c in checks)
    return (f'<section><h2>Verdicts</h2><div class="wide"><table class="matrix"><thead><tr><th>model</th>{head}</tr>'
            f'</thead><tbody>{"".join(rows)}</tbody></table></div></section>')


def _problem(result: Result, change: Change | None) -> str:
    since = f"<p>{escape(change.text)}</p>" if change else ""
    if change and change.bisect:
        since += f"<p>To find the commit:</p><pre class=command>{escape(change.bisect)}</pre>"
    output = f"<details><summary>Output</summary><pre>{escape(result.details)}</pre></details>" if result.details else ""
    return (f'<article class="{result.verdict.lower()}"><h3><b>{result.verdict}</b> {escape(result.name)}</h3>'
            f"<p>{escape(result.message)}</p>{since}{output}</article>")


def _problems(run: RunRecord, found: list[Change]) -> str:
    by_name = {c.result.name: c for c in found}
    bad = run.of(FAIL) + run.of(ERROR)
    if not bad:
        return ""
    return ("<section><h2>What is wrong</h2>"
            + "".join(_problem(r, by_name.get(r.name) if r.verdict == FAIL else None) for r in bad) + "</section>")


def _since_green(run: RunRecord, past: list[RunRecord], found: list[Change], root: Path) -> str:
    green = next((r for r in reversed(past) if r.verdict == GREEN), None)
    if not green:
        return '<section><h2>Since the last green run</h2><p class="quiet">The history has no green run.</p></section>'
    commits = commits_between(root, green.commit, run.commit)
    rest = [c for c in found if c.result.verdict != FAIL]
    listed = "".join(f"<li><code>{escape(h)}</code> {escape(s)}</li>" for h, s in commits)
    body = f"<ul class=commits>{listed}</ul>" if commits else '<p class="quiet">No other commit.</p>'
    if "+" in run.commit:
        body += "<p>The tree has changes that are in no commit.</p>"
    if green.tools != run.tools and not commits and green.commit == run.commit:
        body += "<p>The programs differ, though the commit is the same.</p>"
    if rest:
        body += "<h3>Other changes</h3><ul>" + "".join(
            f"<li><b>{escape(c.result.name)}</b>: {escape(c.text)}</li>" for c in rest) + "</ul>"
    return (f"<section><h2>Since the last green run</h2><p class=quiet>{_time(green.started)}, "
            f"<code>{escape(green.commit[:12])}</code></p>{body}</section>")


def _skipped(run: RunRecord) -> str:
    if not run.of(SKIP):
        return ""
    rows = "".join(f"<li>{escape(reason)}" + "".join(f"<p class=quiet>{escape(group)}</p>" for group in groups) + "</li>"
                   for reason, groups in skipped(run))
    return f"<section><h2>Skipped: {len(run.of(SKIP))}, none of them a pass</h2><ul>{rows}</ul></section>"


def _figures(run: RunRecord, past: list[RunRecord]) -> str:
    cards = []
    for result in run.results:
        for figure, value in result.figures.items():
            points = [(old.figures[figure], old.verdict) for r in past[-(RUNS_SHOWN - 1):]
                      if (old := r.result(result.model, result.check)) and figure in old.figures]
            frame = sparkline([*points, (value, result.verdict)])
            cards.append(f'<figure><figcaption>{escape(result.model)}<br><b>{escape(figure)}</b> '
                         f"<output>{_number(value)}</output></figcaption>{frame}</figure>")
    if not cards:
        return ""
    return (f'<section><h2>Figures over the last runs</h2><p class="quiet">A dot for each run, the newest at the '
            f'right, red where its check failed; the scale is each figure\'s own.</p>'
            f'<div class="cards">{"".join(cards)}</div></section>')


def _all(run: RunRecord) -> str:
    rows = "".join(
        f'<tr><td>{escape(r.name)}</td><td class="cell {r.verdict.lower()}">{r.verdict}</td>'
        f"<td>{_time(_seconds(r.seconds)) if r.started else ''}</td><td>{escape(r.message)}</td></tr>"
        for r in run.results)
    return (f'<section><details><summary>Every check, with its duration</summary><div class="wide"><table>'
            f"<thead><tr><th>check</th><th>verdict</th><th>time</th><th></th></tr></thead><tbody>{rows}</tbody>"
            f"</table></div></details></section>")


def render(run: RunRecord, past: list[RunRecord], root: Path) -> str:
    """@param past  runs before this one, oldest first; @param root  the git tree that knows the commits"""
    found = changes(past, run)
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta name="color-scheme" content="light dark">'
            f"<title>{WORD[run.verdict]}: nightly {escape(run.commit[:12])}</title><style>{STYLE}</style></head><body>"
            f"<main>{_banner(run, past)}{_matrix(run)}{_problems(run, found)}"
            f"{_since_green(run, past, found, root)}{_skipped(run)}{_figures(run, past)}{_all(run)}</main></body></html>\n")
