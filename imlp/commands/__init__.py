"""One file a command: its options, its output, and nothing that a program would want to call."""
