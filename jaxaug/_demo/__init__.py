"""What `python -m jaxaug demo` and `python -m jaxaug preview` do; no part of the public interface."""
