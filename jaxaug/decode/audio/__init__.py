"""Sound: what files tell of themselves, windows of their samples, and the decoder of a column."""
