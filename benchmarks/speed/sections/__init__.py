"""The parts of the benchmark, a module each with a function ``measure``; a run imports those that it needs."""
