"""Many runs: sweeps, searches, the paper's experiments, on this machine or on a Ray cluster, and what came out."""
