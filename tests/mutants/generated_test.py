#!/usr/bin/env python3
"""Tests the list of generated mutants against the fault points that are planted."""

import re
import unittest
from pathlib import Path

from generate import CLASSES, generate, missing_isa, sample
from plant import planted_sites, read_edits

HERE = Path(__file__).resolve().parent
ROOM = {"key": 20, "value": 24}  # planted_fault.h's fields, with the end
MOST_CONDITIONS = 8
MOST_ITEMS = 4  # of one site


def items(mutant) -> list[tuple[str, list[tuple[str, str]]]]:
    """(site, [(key, value)...]) of each item; a remainder's key is what stands before the %."""
    out = []
    for text in mutant.id.split(","):
        site, *conditions = text.split(":")
        parsed = [re.fullmatch(r"(\w+)(?:%\d+)?[=<>](.+)", c) for c in conditions]
        assert all(parsed), text
        out.append((site, [(m[1], m[2]) for m in parsed]))
    return out


class GenerateTest(unittest.TestCase):
    def setUp(self):
        self.mutants = generate()
        texts = [edit.wrong for of_file in read_edits(HERE).values() for edit in of_file]
        texts += [path.read_text(encoding="utf-8") for path in HERE.glob("planted_*.h")]
        self.planted = "\n".join(texts)

    def test_there_are_hundreds_and_each_once(self):
        ids = [m.id for m in self.mutants]
        self.assertGreaterEqual(len(ids), 300)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual({m.kind for m in self.mutants}, set(CLASSES))

    def test_every_run_gives_the_same(self):
        self.assertEqual(self.mutants, generate())
        self.assertEqual(sample(self.mutants, 60, "1"), sample(self.mutants, 60, "1"))
        self.assertNotEqual(sample(self.mutants, 60, "1"), sample(self.mutants, 60, "2"))

    def test_a_mutant_of_an_instruction_set_is_left_out_where_the_cpu_lacks_it(self):
        flags = {"avx2", "avx512f", "avx512_vnni"}
        missing = {m.id: missing_isa(m, flags) for m in self.mutants}
        self.assertEqual(set(missing.values()), {"", "avxvnni", "amx"})
        self.assertEqual({i for i, isa in missing.items() if isa}, {i for i in missing if re.search(":isa=(avxvnni|amx)", i)})

    def test_a_sample_has_every_class(self):
        for seed in range(20):
            chosen = sample(self.mutants, 60, str(seed))
            self.assertEqual(len(set(chosen)), 60)
            self.assertEqual({m.kind for m in chosen}, set(CLASSES))

    def test_sites_are_those_planted(self):
        sites = {site for m in self.mutants for site, _ in items(m)}
        self.assertEqual(sites, planted_sites(HERE))

    def test_conditions_and_effects_are_those_planted(self):
        for mutant in self.mutants:
            self.assertLessEqual(len(items(mutant)), MOST_ITEMS, mutant.id)
            for _, conditions in items(mutant):
                self.assertLessEqual(len(conditions), MOST_CONDITIONS + 1, mutant.id)
                for key, value in conditions:
                    self.assertLess(len(key), ROOM["key"], mutant.id)
                    self.assertLess(len(value), ROOM["value"], mutant.id)
                    self.assertTrue(key == "effect" or f'{{"{key}", ' in self.planted, f"{mutant.id}: no site knows {key}")
                    if key == "effect":
                        self.assertIn(f'"{value}"', self.planted, f"{mutant.id}: no site has this effect")

    def test_expressions_compile_and_match_no_empty_name(self):
        for mutant in self.mutants:
            self.assertIsNone(re.fullmatch(mutant.names, ""), mutant.id)


if __name__ == "__main__":
    unittest.main()
