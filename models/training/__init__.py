"""Everything that makes the embedded model: stories, tokenizer, training, export and checks.

Run the modules from the repository root, in the order that models/README.md gives.
"""
