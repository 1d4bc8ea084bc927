"""The native libraries, each in a module of its own; nothing is loaded before it is asked for."""
