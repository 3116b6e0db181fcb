"""The pages of the report, each a function of results that returns Markdown; empty if there is nothing to tell."""
