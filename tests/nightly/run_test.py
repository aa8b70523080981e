"""Whole runs over fake tools: verdicts, exit codes, what is kept."""

import contextlib
import time
import unittest
from pathlib import Path
from unittest import mock

from support import ROOT, Tree
from nightly import files, history, manifest, run
from nightly.results import ERROR, FAIL, PASS, SKIP, Result


class VerdictTest(Tree):
    def one(self, check: str, code: str) -> tuple[int, Result]:
        self.fault(check, code)
        exit_code, record = self.run_once(f"state-{code}", models=self.manifest.models[:1], checks=[check])
        return exit_code, record.results[0]

    def test_green_says_what_was_skipped(self):
        code, record = self.run_once()
        self.assertEqual((code, record.verdict), (0, "PASS"))
        self.assertIn("SKIPPED, which is not a pass", record.summary)
        self.assertEqual(record.result("b-q4", "verify").verdict, SKIP)
        self.assertEqual(record.result("b-q4", "kld").verdict, "INFO")  # nothing frozen to hold it against
        self.assertEqual(record.result("a", "ppl").verdict, PASS)
        self.assertEqual(self.run_once(strict=True)[0], 2)

    def test_exit_codes_of_llmcheck(self):
        for code, verdict, run_code in (("1", FAIL, 1), ("7", FAIL, 1), ("8", FAIL, 1), ("SEGV", FAIL, 1), ("9", ERROR, 2),
                                        ("4", ERROR, 2), ("2", ERROR, 2)):
            with self.subTest(code=code):
                exit_code, result = self.one("self", code)
                self.assertEqual((result.verdict, exit_code), (verdict, run_code))

    def test_no_report_is_no_pass(self):
        (self.bin / "llmcheck").write_text("#!/bin/sh\nexit 0\n")
        code, record = self.run_once(models=self.manifest.models[:1], checks=["self"])
        self.assertEqual((code, record.results[0].verdict), (2, ERROR))

    def test_everything_skipped_is_not_green(self):
        code, record = self.run_once(models=self.manifest.models[1:], source=self.source(offline=True))
        self.assertEqual((code, record.verdict, {r.verdict for r in record.results}), (2, "NOT RUN", {SKIP}))

    def test_figures_that_rise_are_red(self):
        model = self.manifest.model("a")
        for frozen, verdict in ((1.25, PASS), (1.2476, PASS), (1.2474, FAIL)):  # 1.25 is 0.19 % and 0.21 % above
            model.figures = {"ppl": {"perplexity": frozen}}
            self.manifest.save()
            _, record = self.run_once(checks=["ppl"], models=[model])
            self.assertEqual(record.results[0].verdict, verdict, frozen)

    def test_other_bytes_from_the_hub_are_red_once(self):
        self.hub.faults["maker/models/b-q4.gguf"] = ["wrong"]
        code, record = self.run_once(checks=["integrity", "self"], models=[self.manifest.model("b-q4")])
        self.assertEqual((code, [r.verdict for r in record.results]), (1, [FAIL, SKIP]))

    def test_a_root_that_differs_is_red(self):
        self.manifest.model("b-q4").root = "0" * 64
        _, record = self.run_once(checks=["integrity"], models=[self.manifest.model("b-q4")])
        self.assertRegex(record.results[0].message, "^root: found .*need 0000")

    def test_a_model_that_is_not_supported_yet(self):
        """Its refusal is a skip, by the program's own words; it is red when it is accepted, and when another is refused."""
        model = self.manifest.model("a")
        (self.bin / "llmgguf").write_text("#!/bin/sh\n[ $1 = hash ] || { echo \"llmgguf: error: $2: arch: no\" >&2; exit 6; }\n")
        for refused, verdict, message in ((True, SKIP, "not supported yet: arch: no"), (False, FAIL, "arch: no")):
            model.refused = refused
            (self.bin / "fault-self").write_text("6")
            code, record = self.run_once(f"{refused}", checks=["self"], models=[model])
            self.assertEqual((record.results[0].verdict, code), (verdict, 2 if refused else 1))
            if refused:
                self.assertEqual(record.results[0].message, message)
        (self.bin / "fault-self").unlink()
        (self.bin / "llmgguf").write_text("#!/bin/sh\n")
        model.refused = True
        _, record = self.run_once("loads", checks=["integrity", "self"], models=[model])
        self.assertEqual([r.verdict for r in record.results], [FAIL, PASS])
        self.assertIn("./dev nightly lock --models a", record.results[0].message)

    def test_a_folder_has_its_own_check(self):
        words = self.place().cache / "sha256"
        folder = words / "unnamed/words"
        folder.mkdir(parents=True)
        (folder / "w.gguf").write_bytes(b"words")
        sha = files.sha256(folder)
        folder.parent.rename(words / sha)
        script = self.root / "tests/public_models/vocabularies.py"
        package = {"package": "p", "version": "1", "file": "p.whl", "sha256": sha, "members": ["*"]}
        model = manifest.Model("w", "w", packages=[package], folder="words", size=5, sha256=sha)
        self.manifest.models = [model]
        for text, verdict in (("", SKIP), ("import sys; sys.exit(0 if sys.argv[2].endswith('words') else 2)", PASS),
                              ("print('v: agrees 5 of 5', 'w: FAIL: line 3', sep='\\n'); raise SystemExit(1)", FAIL)):
            if text:
                files.write_atomically(script, text)
            _, record = self.run_once(models=[model], source=self.source(offline=True))
            self.assertEqual([(r.check, r.verdict) for r in record.results], [("vocabularies", verdict)])
        self.assertEqual(record.results[0].message, "w: FAIL: line 3")
        (words / sha / "words/w.gguf").write_bytes(b"sword")
        self.assertEqual(self.run_once(models=[model], source=self.source(offline=True))[1].results[0].verdict, FAIL)

    def test_a_public_model_against_its_frozen_figures(self):
        """The script's lines that say FAIL are the reason; models without such a reference have no such check."""
        reference = self.root / "tests/golden/real/a"
        files.write_atomically(reference / "facts.json", "{}")
        self.manifest.model("a").references["real"] = {"path": "root/tests/golden/real/a"}
        text = "import sys; print(*sys.argv[3:]); print('FAIL greedy texts'); sys.exit({})"
        for code, verdict in ((0, PASS), (1, FAIL), (2, ERROR)):
            files.write_atomically(self.root / "tests/public_models/check.py", text.format(code))
            _, record = self.run_once(checks=["real"], models=self.manifest.models[:2])
            self.assertEqual([(r.name, r.verdict) for r in record.results], [("a real", verdict)])
            self.assertIn(record.results[0].message[:12], ("", "greedy texts", "could not ru"))

    def test_a_changed_reference_could_not_run(self):
        path = self.place().path("references/ref.json")
        files.write_json(path, {})
        self.manifest.model("a").references["verify"] = {"path": "references/ref.json", "sha256": files.sha256(path)}
        for content, code, verdict in (("{}\n", 0, PASS), ("{} ", 2, ERROR)):
            path.write_text(content)
            found, record = self.run_once(checks=["verify"], models=self.manifest.models[:1])
            self.assertEqual((found, record.results[0].verdict), (code, verdict))

    def test_what_git_pins_may_change_and_is_run_again(self):
        self.assertEqual(self.run_once(checks=["verify"], models=self.manifest.models[:1])[0], 0)
        (self.root / "ref.json").write_text("{} ")
        self.fault("verify", "1")  # a result that was kept would be green
        self.assertEqual(self.run_once(checks=["verify"], models=self.manifest.models[:1])[0], 1)

    def test_a_hanging_program_is_ended(self):
        (self.bin / "pause").write_text("30")
        code, record = self.run_once(checks=["self"], models=self.manifest.models[:1], timeout=0.3)
        self.assertEqual((code, record.results[0].message), (2, "not done after 0 s"))


class KeptTest(Tree):
    def test_finished_work_is_kept_until_something_changes(self):
        self.run_once(checks=["self"], models=self.manifest.models[:1])
        with mock.patch.object(run, "perform", side_effect=AssertionError("ran again")):
            self.run_once(checks=["self"], models=self.manifest.models[:1])
        (self.bin / "llmcheck").write_text((self.bin / "llmcheck").read_text() + "# other\n")
        self.fault("self", "1")
        self.assertEqual(self.run_once(checks=["self"], models=self.manifest.models[:1])[0], 1)

    def test_again_runs_anew(self):
        self.run_once(checks=["self"], models=self.manifest.models[:1])
        self.fault("self", "1")
        self.assertEqual(self.run_once(checks=["self"], models=self.manifest.models[:1], again=True)[0], 1)

    def test_what_could_not_run_is_tried_again(self):
        self.fault("self", "4")
        self.assertEqual(self.run_once(checks=["self"], models=self.manifest.models[:1])[0], 2)
        (self.bin / "fault-self").unlink()
        self.assertEqual(self.run_once(checks=["self"], models=self.manifest.models[:1])[0], 0)


class ProcessTest(Tree):
    def test_an_interrupted_run_keeps_what_is_done(self):
        options = {"checks": ["integrity", "self"], "models": self.manifest.models[:1]}
        with mock.patch.object(run, "perform", side_effect=[Result("a", "integrity", PASS), KeyboardInterrupt]):
            self.assertEqual(run.run(self.manifest, self.place(), self.options(**options)), 2)
        self.assertEqual(history.load(self.folder / "state/history.jsonl"), [])
        with mock.patch.object(run, "perform", wraps=run.perform) as again:
            self.assertEqual(self.run_once(**options)[0], 0)
        self.assertEqual(again.call_count, 1)

    def test_two_at_once_are_refused(self):
        with files.locked(self.folder / "state/run.lock"):
            code, words = self.nightly()
        self.assertIn("another run is at work", words)
        self.assertEqual(code, 2)

    def test_programs_end_with_the_job(self):
        (self.bin / "pause").write_text("61.25")
        process = self.spawn("--checks", "self", "--models", "a")
        self.assertTrue(self.becomes(True))
        process.kill()
        process.communicate()
        self.assertTrue(self.becomes(False))

    def becomes(self, there: bool) -> bool:
        """Whether within 10 s an llmcheck of this test runs, or none does."""
        for _ in range(200):
            found = False
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it has just ended
                    found |= f"{self.bin}/llmcheck".encode() in path.read_bytes().split(b"\0")[:2]
            if found == there:
                return True
            time.sleep(0.05)
        return False


class ManifestTest(Tree):
    def refuse(self, old: str, new: str, message: str):
        path = self.root / "models.lock"
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))
        with self.assertRaisesRegex(manifest.ManifestError, message):
            manifest.load(path)

    def test_a_saved_lock_reads_back(self):
        text = (self.root / "models.lock").read_text()
        self.manifest.save()
        self.assertEqual((self.root / "models.lock").read_text(), text)

    def test_bad_locks_are_named(self):
        sha = self.manifest.model("b-q4").sha256
        size = f'"size": {self.manifest.model("b-q4").size}'
        for old, new, message in (
                ('"nightly-models/2"', '"nightly-models/1"', "format: found \"nightly-models/1\", need"),
                (sha, sha.upper(), r"models\[1\].sha256: found .* need 64 lower-case hex digits"),
                (size, '"size": "11"', r"models\[1\].size: found \"11\", need a number of bytes"),
                ('"path": "models/a.gguf"', '"path": "models/a.gguf", "size": 11', r"models\[0\].size: found 11, need none"),
                ('"path": "root/ref.json"', f'"path": "root/ref.json", "sha256": "{sha}"', "verify.sha256: found .* need none"),
                ('"path": "root/ref.json"', '"path": "references/ref.json"', "verify.sha256: found null, need 64"),
                ('"path": "root/ref.json"', '"path": "cache/ref.json"', "verify.path: .* need root/... or references/..."),
                ("models/a.gguf", "../a.gguf", r"models\[0\].path: .* need a relative path"),
                ('"b-q4"', '"b-q8"', r"models\[2\].name: .* no other model"),
                ('"b": "b-q8"', '"b": "a"', "families.b: found \"a\", need a model of this family"),
                ('"verify"', '"verfiy"', r"models\[0\].references: found \"verfiy\", need one of"),
                ('{\n  "format"', '\n  "format"', "need JSON")):
            with self.subTest(message=message):
                self.make_manifest()
                self.refuse(old, new, message)

    def test_the_committed_lock_is_valid(self):
        models = manifest.load(ROOT / "models/models.lock").models
        self.assertEqual(len([m for m in models if m.name.startswith("tinyllama")]), 5)
        for model in models:
            for name in [model.path] + [r["path"].removeprefix("root/") for r in model.references.values()]:
                self.assertTrue(name is None or name.startswith("references/") or (ROOT / name).exists(), name)


if __name__ == "__main__":
    unittest.main()
