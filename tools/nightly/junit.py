"""The run as JUnit XML: a suite for each model, a case for each check."""

from xml.sax.saxutils import escape, quoteattr

from .history import RunRecord
from .results import ERROR, FAIL, INFO, SKIP, Result


def _xml(text: str) -> str:
    """Without what XML 1.0 cannot hold."""
    return "".join(c if c in "\t\n" or c >= " " and c not in "\ufffe\uffff" else "?" for c in text)


def _case(result: Result) -> str:
    head = f'    <testcase classname={quoteattr(result.model)} name={quoteattr(result.check)} time="{result.seconds}"'
    message = quoteattr(_xml(result.message))
    body = escape(_xml(result.details))
    inner = {
        FAIL: f"<failure message={message}>{body}</failure>",
        ERROR: f"<error message={message}>{body}</error>",
        SKIP: f"<skipped message={message}/>",
        INFO: f"<system-out>{escape(_xml(result.message))} {escape(str(result.figures))}</system-out>",
    }.get(result.verdict)
    return f"{head}>{inner}</testcase>" if inner else f"{head}/>"


def render(run: RunRecord) -> str:
    suites = []
    for model in dict.fromkeys(r.model for r in run.results):
        some = [r for r in run.results if r.model == model]
        count = {v: sum(r.verdict == v for r in some) for v in (FAIL, ERROR, SKIP)}
        suites.append(f'  <testsuite name={quoteattr(model)} tests="{len(some)}" failures="{count[FAIL]}" '
                      f'errors="{count[ERROR]}" skipped="{count[SKIP]}" timestamp="{run.started.rstrip("Z")}">\n'
                      + "\n".join(map(_case, some)) + "\n  </testsuite>\n")
    return (f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="nightly" tests="{len(run.results)}" '
            f'failures="{len(run.of(FAIL))}" errors="{len(run.of(ERROR))}" skipped="{len(run.of(SKIP))}">\n'
            + "".join(suites) + "</testsuites>\n")
