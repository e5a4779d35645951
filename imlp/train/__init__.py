"""One run: its settings, data, schedule, lanes, loop and folder."""
