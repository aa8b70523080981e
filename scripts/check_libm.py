#!/usr/bin/env python3
"""Checks that the C library decides no bit: no object of quant/ and engine/ refers to a function that it may round as it likes.

    scripts/check_libm.py [BUILD_DIR]        (default: build/release)

Each C library has its own cos, exp and pow, and none need round to the nearest. Logits, draws and quantized weights use those of
quant/numerics/ instead; of libm they may use what is exact by definition: sqrt, fma, floor, ceil, ldexp and their like.
"""

import pathlib
import re
import sys

from check_isa_leaks import ROOT, CheckError, output_of

NAMES = (r"a?(cos|sin|tan)h?(pi)?|atan2(pi)?|sincos|exp|exp2|exp10|pow10|expm1|log|log2|log10|log1p|pow|cbrt|hypot|erfc?|"
         r"[tl]gamma|lgamma_r|gamma|[jy][01n]")
INEXACT = re.compile(rf"\s+U (__)?({NAMES})[fl]?(_finite)?(@.*)?$")


def main() -> int:
    build_dir = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "release"
    objects = sorted(path for folder in ("quant", "engine") for path in (build_dir / folder).rglob("*.o"))
    try:
        if not objects:
            raise CheckError(f"{build_dir}: no objects of quant/ and engine/; run ./dev build first")
        found = {path: match for path in objects for line in output_of("nm", "--undefined-only", str(path)).splitlines()
                 if (match := INEXACT.match(line))}
    except CheckError as error:
        print(f"check_libm: error: {error}", file=sys.stderr)
        return 2
    for path, match in found.items():
        print(f"{path.relative_to(build_dir)}: {match[2]} of the C library; see quant/numerics/f64_functions.h", file=sys.stderr)
    if not found:
        print(f"{len(objects)} objects of quant/ and engine/ use no function that the C library rounds as it likes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
