"""Files near and far: listed, indexed, mapped, read."""
