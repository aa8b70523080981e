#!/usr/bin/env python3
"""Checks that no code compiled for one instruction set can be linked into another's path.

    scripts/check_isa_leaks.py [BUILD_DIR]        (default: build/release)

A function that is inline, or a template outside an anonymous namespace, leaves a weak copy in every object that uses it,
and the linker keeps one of them for all. If that copy comes from an object built with -mavx2, a CPU without AVX2 dies in
code that seemed to be portable. So the objects of units with flags of their own (quant/kernels/kernels_*.cpp, the peaks
in bench/), found in compile_commands.json by these flags, may export nothing but tables: constants named
llm::k...<ISA>. They may not run code at start-up either, when nobody has looked at the CPU yet.
"""

import json
import pathlib
import platform
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ISA_FLAG = re.compile(r"-m(avx|fma|f16c|sse3|ssse3|sse4|bmi|popcnt|arch=)")
KERNEL_UNIT = re.compile(r"quant/kernels/kernels_\w+\.cpp$")
TABLE = re.compile(r"llm::k\w*(Scalar|Avx2|Avx512|AvxVnni|Avx512Vnni|Amx|Neon)$")
# The reference to the exception personality that g++ makes hidden and mergeable in every object.
COMPILER_OWN = re.compile(r"DW\.ref\.__gxx_personality_v0$")
# nm: upper case is global; V, v, W, w and u are mergeable; U is undefined.
GLOBAL_KINDS = frozenset("ABCDGRSTVWuvw")


class CheckError(Exception):
    """The objects cannot be examined."""


def cross_prefix(arguments: list[str]) -> str:
    """What the names of a cross compiler's tools begin with: "aarch64-linux-gnu-"; else nothing."""
    for argument in arguments:
        if found := re.fullmatch(r"(?:.*/)?(\w+-linux-gnu-)g\+\+(-\d+)?", argument):
            return found[1]
    return ""


def isa_objects(build_dir: pathlib.Path) -> tuple[dict[str, pathlib.Path], str]:
    """Source (relative to the root) -> object, of every unit built for an instruction set; the tools' cross_prefix()."""
    commands = build_dir / "compile_commands.json"
    if not commands.is_file():
        raise CheckError(f"{commands}: not found; run ./dev build first")
    objects = {}
    prefix = ""
    for entry in json.loads(commands.read_text(encoding="utf-8")):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        name = source.relative_to(ROOT).as_posix() if source.is_relative_to(ROOT) else str(source)
        arguments = entry.get("arguments") or shlex.split(entry["command"])
        if not KERNEL_UNIT.search(name) and not any(ISA_FLAG.match(a) for a in arguments):
            continue
        prefix = cross_prefix(arguments)
        built = pathlib.Path(entry["directory"], arguments[arguments.index("-o") + 1])
        if not built.is_file():
            raise CheckError(f"{built}: not found; run ./dev build first")
        objects[name] = built
    kernels = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("quant/kernels/kernels_*.cpp")}
    if not kernels:
        raise CheckError("quant/kernels/kernels_*.cpp: none found; this script looks in the wrong place")
    x86 = (prefix or platform.machine()).startswith(("x86_64", "AMD64"))
    kernels = {name for name in kernels if name.endswith("_scalar.cpp") or name.endswith("_neon.cpp") != x86}
    for name in sorted(kernels - objects.keys()):
        raise CheckError(f"{commands}: found no {name}; run ./dev build first")
    return objects, prefix


def output_of(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CheckError(f"{' '.join(command)}: {error}") from error


def leaks(built: pathlib.Path, prefix: str) -> list[str]:
    """What the object exports or does and must not, one line each."""
    found = []
    tables = 0
    for line in output_of(f"{prefix}nm", "-C", "--defined-only", str(built)).splitlines():
        kind, symbol = line[17:].split(" ", 1)
        if kind not in GLOBAL_KINDS or COMPILER_OWN.match(symbol):
            continue
        if kind in "DR" and TABLE.match(symbol):
            tables += 1
        else:
            found.append(f"{kind} {symbol}")
    if tables != 1:
        found.append(f"{tables} tables llm::k...<ISA>, need 1")
    sections = output_of(f"{prefix}objdump", "-h", str(built))
    if re.search(r"\s\.(init_array|ctors)\b", sections):
        found.append("code that runs at start-up (.init_array)")
    return found


def main() -> int:
    build_dir = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "release"
    try:
        objects, prefix = isa_objects(build_dir)
        bad = {name: found for name, built in objects.items() if (found := leaks(built, prefix))}
    except CheckError as error:
        print(f"check_isa_leaks: error: {error}", file=sys.stderr)
        return 2
    for name, found in bad.items():
        for what in found:
            print(f"{name}: {what}", file=sys.stderr)
    if bad:
        print("Make these static, put them into an anonymous namespace, or inline them always.", file=sys.stderr)
        return 1
    print(f"{len(objects)} units of an instruction set export their tables and nothing else")
    return 0


if __name__ == "__main__":
    sys.exit(main())
