"""Speed and memory, ours beside the peers' and beside the machine's limits: `make bench`, benchmarks/README.md."""
