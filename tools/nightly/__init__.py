"""The nightly regression job: `./dev nightly`, described in docs/nightly.md."""
