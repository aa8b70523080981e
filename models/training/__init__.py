"""Everything that makes the embedded model: stories, tokenizer, training and export.

Run the modules from the repository root, in the order that models/README.md gives.
"""
