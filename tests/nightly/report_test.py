"""History, JUnit, `lock` and `references`."""

import unittest
import xml.etree.ElementTree as ElementTree

from support import Tree
from hub import COMMIT
from nightly import files, history, lock, manifest, references
from nightly.results import ERROR, FAIL, INFO, PASS, SKIP, Result


def record(number: int, *results: Result, commit: str = "") -> history.RunRecord:
    return history.RunRecord(f"run{number:02}", f"2026-11-{number:02}T03:00:00Z", commit or f"{number:040x}", "tools", "CPU",
                             False, list(results))


def result(check: str, verdict: str, **more) -> Result:
    return Result("m", check, verdict, **more)


class ReportTest(Tree):
    def test_verdict_of_a_run(self):
        ok, red, skip, info, error = (result("x", v) for v in (PASS, FAIL, SKIP, INFO, ERROR))
        for results, verdict in (([ok], "PASS"), ([ok, skip], "PASS"), ([ok, info], "PASS"), ([skip], "NOT RUN"), ([], "NOT RUN"),
                                 ([info], "NOT RUN"), ([ok, error], "NOT RUN"), ([ok, error, red], "FAIL")):
            self.assertEqual(record(1, *results).verdict, verdict)
        self.assertEqual(history.skipped(record(1, ok, result("y", SKIP, message="no y"))), {"no y": ["m y"]})

    def test_red_names_its_beginning(self):
        a, b, c = "a" * 40, "b" * 40, "c" * 40
        past = [record(1, result("self", PASS), commit=a), record(2, result("self", FAIL), commit=b)]
        words = history.changes(past, record(3, result("self", FAIL, message="row 7"), commit=c))
        self.assertIn("green on 2026-11-01 at aaaaaaaaaaaa, red since 2026-11-02 at bbbbbbbbbbbb", words[0])

    def test_changes_since_the_last_green_run(self):
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        green = self.git("rev-parse", "HEAD")
        for subject in ("second", "third"):
            self.git("commit", "-qm", subject, "--allow-empty")
        past = [record(1, result("ppl", PASS, figures={"perplexity": 1.5}), commit=green), record(2, result("ppl", FAIL))]
        run = record(3, result("ppl", PASS, figures={"perplexity": 1.5000001}), result("new", PASS),
                     commit=self.git("rev-parse", "HEAD"))
        words = "\n".join(history.since_green(past, run, self.root))
        for text in ("second", "third", "perplexity 1.5 to 1.5000001", "m new: new"):
            self.assertIn(text, words)
        self.assertNotIn("first", words)

    def test_history_takes_a_run_once_and_survives_a_damaged_line(self):
        path = self.folder / "history.jsonl"
        for run in (record(1, result("a", PASS)), record(2, result("a", FAIL)), record(2, result("a", PASS))):
            history.add(path, run)
        path.write_text(path.read_text() + '{"id": "cut')
        self.assertEqual([r.verdict for r in history.load(path)], ["PASS", "PASS"])

    def test_pytest_reports_every_verdict(self):
        """A check for each in junit.xml: failures, errors (what could not run) and skips, with the message."""
        self.fault("self", "1")
        self.fault("verify", "4")
        self.assertEqual(self.run_once(models=self.manifest.models[:1], checks=["self", "verify", "layer-diff", "ppl"])[0], 1)
        suite = ElementTree.parse(self.folder / "state/junit.xml").getroot().find("testsuite")
        self.assertEqual([suite.attrib[k] for k in ("tests", "failures", "errors", "skipped")], ["4", "1", "1", "1"])
        cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
        self.assertIn("self: as asked", cases["test_check[a:self]"].find("failure").attrib["message"])
        self.assertEqual(cases["test_check[a:ppl]"].find("properties/property").attrib, {"name": "perplexity", "value": "1.25"})


class LockTest(Tree):
    def lock(self, update: bool = False, fetch: bool = True) -> int:
        return lock.lock(self.manifest, self.manifest.models, self.locker(update), fetch)

    def test_fills_what_is_missing(self):
        for model in self.manifest.models:
            model.size = model.sha256 = None
        self.assertEqual(self.lock(), 0)
        self.assertIsNone(self.manifest.model("a").sha256)  # git pins it
        for model in manifest.load(self.manifest.path).models[1:]:
            self.assertEqual(model.sha256, model.root)  # the fake tool's root
            self.assertTrue(model.pinned)
        self.assertEqual(manifest.load(self.manifest.path).model("b-q4").revision, COMMIT)

    def test_a_refused_model_is_marked_and_the_mark_goes(self):
        self.fault("verify", "6")
        model = self.manifest.model("b-q4")
        self.assertEqual(self.lock(), 0)
        self.assertTrue(manifest.load(self.manifest.path).model("b-q4").refused)
        (self.bin / "fault-verify").unlink()
        self.assertEqual(self.lock(), 0)
        self.fault("verify", "6")  # once accepted, a refusal is not made a skip
        self.assertEqual((self.lock(), model.refused), (0, False))

    def test_without_fetching_the_hub_is_believed(self):
        self.manifest.model("b-q4").sha256 = None
        self.assertEqual(self.lock(fetch=False), 0)
        self.assertEqual([n for n, *_ in self.hub.requests], [])
        self.assertTrue(self.manifest.model("b-q4").pinned)

    def test_a_pinned_hash_is_not_replaced_silently(self):
        self.manifest.model("b-q4").sha256 = "0" * 64
        self.assertEqual(self.lock(), 1)
        self.assertEqual(self.manifest.model("b-q4").sha256, "0" * 64)
        self.assertEqual(self.lock(update=True), 0)
        self.assertNotEqual(self.manifest.model("b-q4").sha256, "0" * 64)

    def test_a_dead_hub_leaves_the_lock_as_it_was(self):
        before = self.manifest.path.read_text()
        self.hub.close()
        self.assertEqual(lock.lock(self.manifest, self.manifest.models[1:2], self.locker(), True), 2)
        self.assertEqual(self.manifest.path.read_text(), before)

    def test_figures_are_frozen_and_then_hold(self):
        for model in self.manifest.models:
            model.figures = {}
        model = self.manifest.model("b-q4")
        code = references.make(self.manifest, model, self.resolved(), self.place(), ["figures"], references.Wish())
        self.assertEqual((code, manifest.load(self.manifest.path).model("b-q4").figures["kld"]["KL mean"]), (0, 0.5))
        _, run = self.run_once(models=[model], checks=["ppl", "kld"])
        self.assertEqual([r.verdict for r in run.results], [PASS, PASS])


class AddTest(Tree):
    """A file of one's own, from anywhere: in the local list, not in the lock."""

    def setUp(self):
        super().setUp()
        self.file = self.folder / "elsewhere/my model.gguf"
        files.write_atomically(self.file, b"my weights")
        self.lock_text = self.manifest.path.read_text()
        oracle = self.root / "tools/reference_f64/verify_reference.py"
        files.write_atomically(oracle, "import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('{}')")

    def test_adds_checks_and_names_a_change(self):
        self.assertEqual(self.nightly("--add", "--only", "verify,figures", str(self.file))[0], 0)
        self.assertEqual(self.manifest.path.read_text(), self.lock_text)
        own = manifest.load(self.manifest.path, self.place().local).model("my-model")
        self.assertEqual((own.path, own.size, own.figures), (str(self.file), 10, {"ppl": {"perplexity": 1.25}}))
        self.assertEqual(own.references["verify"]["path"], f"references/{own.sha256}/verify.json")
        run = ("--models", "my-model", "--checks", "integrity,self,verify,ppl")
        self.assertEqual(self.nightly(*run)[0], 0)
        self.assertEqual({r["verdict"] for r in self.result_json()["results"]}, {PASS})
        self.file.write_bytes(b"my Weights")
        self.assertEqual(self.nightly(*run)[0], 1)
        self.assertIn("my model.gguf: SHA-256: found", self.result_json()["results"][0]["message"])
        code, words = self.nightly("--add", str(self.file), "--only", "figures")
        self.assertEqual(code, 2)
        self.assertIn("(--update replaces it)", words)
        self.assertEqual(self.nightly("--add", str(self.file), "--only", "figures,verify", "--update")[0], 0)
        self.assertEqual(self.nightly(*run)[0], 0)
        changed = manifest.load(self.manifest.path, self.place().local).model("my-model")
        self.assertIn(changed.sha256, changed.references["verify"]["path"])

    def test_what_cannot_be_added(self):
        self.file = self.file.rename(self.file.with_name("b-q4.gguf"))
        code, words = self.nightly("--add", str(self.file))
        self.assertEqual(code, 2)
        self.assertIn("need a file whose name no other model has: b-q4", words)
        self.fault("verify", "6")
        code, words = self.nightly("--add", str(self.file.rename(self.file.with_name("new.gguf"))))
        self.assertEqual(code, 2)
        self.assertIn("new.gguf is refused", words)
        self.assertEqual(self.nightly("--add", str(self.folder / "none.gguf"))[0], 2)
        self.assertFalse(self.place().local.exists())

    def test_a_relative_path_in_the_local_list(self):
        files.write_json(self.place().local, {"format": manifest.FORMAT, "models": [{"name": "x", "family": "x", "path": "x.gguf"}]})
        with self.assertRaisesRegex(manifest.ManifestError, r"local.lock: models\[0\].path: found \"x.gguf\", need an absolute path"):
            manifest.load(self.manifest.path, self.place().local)


if __name__ == "__main__":
    unittest.main()
