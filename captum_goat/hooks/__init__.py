"""Everything that is put on the user's model while it runs, and taken off again."""
