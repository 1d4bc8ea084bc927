"""Bytes to verdict and facts: which images are good, and what their headers say."""
