"""The benchmarks behind ``ferroket bench``: each compares with a peer, in pairs, in one run, on the same cores."""
