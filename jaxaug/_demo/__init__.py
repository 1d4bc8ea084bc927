"""The commands `demo` and `preview`; no part of the public interface."""
