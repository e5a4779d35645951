"""One file per command: it parses its options, calls the library and prints; a program would call the library."""
