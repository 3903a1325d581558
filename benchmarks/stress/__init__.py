"""Processes, raw clients and faulty servers that `benchmarks.load`, `benchmarks.chaos` and `benchmarks.soak` share."""
