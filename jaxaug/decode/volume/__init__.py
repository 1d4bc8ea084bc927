"""From the bytes of files to volumes."""
