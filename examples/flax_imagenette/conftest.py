"""Pytest puts the folder of a conftest on the path: that is how the tests find `train` and its
neighbours.
"""
