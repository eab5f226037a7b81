"""What convinces us: experiments, benchmarks and tools, with their results. `albert_tf` never imports it."""
