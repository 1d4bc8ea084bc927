"""Videos: from bytes to the planes of the frames that a row shows."""
