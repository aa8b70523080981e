"""A second verifier of receipts, written from the pages in docs/ (docs/receipts.md, "A second verifier")."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "reference_f64"))  # the decoder and its hyper-parameters
