"""Benchmarks that state the machine, interleave what they compare, and prove their cold reads."""
