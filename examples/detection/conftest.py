"""Pytest puts the folder of a conftest on the path, so that the tests find `centers`."""
