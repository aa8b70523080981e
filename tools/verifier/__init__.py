"""A second verifier of receipts, written from the pages in docs/ (docs/receipts.md, "A second verifier")."""
