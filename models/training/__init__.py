"""What makes the embedded model out of its first run: stories and training. models/README.md has the commands."""
