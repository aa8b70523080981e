#!/usr/bin/env python3
"""Tests plant.py on a small tree of its own, and the edits of this one."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from plant import INCLUDE, planted_tree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SOURCE = "int one() { return 1; }\nint two() { return 2; }\nint also_two() { return 2; }\n"


def edit(file: str, text: str, wrong: str) -> str:
    return f"[['{file}']]\ntext = '''\n{text}'''\nwrong = '''\n{wrong}'''\n"


class PlantTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name) / "tree"
        self.copy = self.root / "build" / "copy"
        self.write("a.cpp", SOURCE)
        self.write("b.cpp", "int three() { return 3; }\n")
        self.write("untracked", "a large model, perhaps")
        self.edits(edit("a.cpp", "return 1;", 'return PLANTED("one") ? 2 : 1;'), ids=["one"])
        subprocess.run(["git", "init", "-q", self.root], check=True)
        subprocess.run(["git", "-C", self.root, "add", "a.cpp", "b.cpp", "tests"], check=True)

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def edits(self, *edits: str, ids: list[str]) -> None:
        self.write("tests/mutants/edits.toml", "".join(edits))
        self.write("tests/mutants/faults.toml", "")
        self.write("tests/mutants/mutants.json", json.dumps({"mutants": [{"id": id} for id in ids]}))
        self.write("tests/mutants/regressions.json", json.dumps({"regressions": []}))

    def plant(self, destination: Path | None = None) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, HERE / "plant.py", self.root, destination or self.copy],
                              capture_output=True, text=True, check=False)

    def assert_refused(self, *words: str) -> None:
        run = self.plant()
        self.assertEqual(run.returncode, 1, run.stdout)
        for word in words:
            self.assertIn(word, run.stderr)
        self.assertFalse(self.copy.exists())

    def times(self) -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in self.copy.rglob("*") if path.is_file()}

    def test_plants_what_the_edits_say_and_copies_the_rest(self):
        run = self.plant()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual((self.copy / "a.cpp").read_text(encoding="utf-8"),
                         INCLUDE + SOURCE.replace("return 1;", 'return PLANTED("one") ? 2 : 1;'))
        self.assertEqual((self.copy / "b.cpp").read_bytes(), (self.root / "b.cpp").read_bytes())
        self.assertFalse((self.copy / "untracked").exists())

    def test_unchanged_files_are_not_rewritten(self):
        self.plant()
        before = self.times()
        self.assertEqual(self.plant().returncode, 0)
        self.assertEqual(self.times(), before)
        self.write("b.cpp", "int three() { return 4; }\n")
        self.assertEqual(self.plant().returncode, 0)
        after = self.times()
        self.assertEqual([name for name in after if after[name] != before[name]], ["b.cpp"])

    def test_files_that_left_the_tree_leave_the_copy(self):
        self.plant()
        (self.copy / "made by the build").write_text("stays", encoding="utf-8")
        (self.root / "b.cpp").unlink()
        self.assertEqual(self.plant().returncode, 0)
        self.assertFalse((self.copy / "b.cpp").exists())
        self.assertTrue((self.copy / "made by the build").exists())

    def test_edits_of_one_file_may_stand_in_any_order(self):
        self.edits(edit("a.cpp", "also_two() { return 2;", 'also_two() { return PLANTED("two") ? 3 : 2;'),
                   edit("a.cpp", "return 1;", 'return PLANTED("one") ? 2 : PLANTED("zero") ? 0 : 1;'),
                   ids=["one", "two", "zero"])
        run = self.plant()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual((self.copy / "a.cpp").read_text(encoding="utf-8"),
                         INCLUDE + 'int one() { return PLANTED("one") ? 2 : PLANTED("zero") ? 0 : 1; }\n'
                         'int two() { return 2; }\nint also_two() { return PLANTED("two") ? 3 : 2; }\n')

    def test_every_edit_that_does_not_match_once_is_named(self):
        self.edits(edit("a.cpp", "return 2;", 'return PLANTED("twice") ? 0 : 2;'),
                   edit("b.cpp", "return 2;", 'return PLANTED("never") ? 0 : 2;'),
                   edit("c.cpp", "return 2;", 'return PLANTED("no_file") ? 0 : 2;'),
                   ids=["twice", "never", "no_file"])
        self.assert_refused("twice: a.cpp: 2 matches (lines 2, 3), need exactly 1", "never: b.cpp: 0 matches, need exactly 1",
                            "no_file: c.cpp: git tracks no such file", "3 edits")

    def test_matches_that_overlap_count(self):
        self.write("b.cpp", "aaa\n")
        self.edits(edit("b.cpp", "aa", 'PLANTED("twice")'), ids=["twice"])
        self.assert_refused("twice: b.cpp: 2 matches")

    def test_edits_do_not_overlap(self):
        self.edits(edit("a.cpp", "one() { return 1;", 'one() { return PLANTED("left") ? 0 : 1;'),
                   edit("a.cpp", "return 1; }", 'return PLANTED("right") ? 0 : 1; }'), ids=["left", "right"])
        self.assert_refused("left: a.cpp: overlaps the edit of right")

    def test_ids_are_those_of_the_list(self):
        self.edits(edit("a.cpp", "return 1;", 'return PLANTED("unlisted") ? 0 : 1;'), ids=["unplanted"])
        self.assert_refused("unlisted: planted by edits.toml, not listed", "unplanted: no edit plants it")

    def test_a_wrong_version_has_a_switch(self):
        self.edits(edit("a.cpp", "return 1;", "return 0;"), ids=[])
        self.assert_refused("no id: a.cpp: an edit needs a text, and PLANTED")

    def test_no_checkout_is_overwritten(self):
        run = self.plant(self.root)
        self.assertEqual(run.returncode, 1)
        self.assertEqual((self.root / "a.cpp").read_text(encoding="utf-8"), SOURCE)

    @unittest.skipUnless((ROOT / ".git").exists(), "no checkout")
    def test_the_edits_of_this_tree_match(self):
        _, problems = planted_tree(ROOT)
        self.assertEqual(problems, [], "".join(problems))


if __name__ == "__main__":
    unittest.main()
