"""The native libraries, each in its own module; a library is loaded when it is first used."""
