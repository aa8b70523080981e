// Placeholder until its owner's first commit.
