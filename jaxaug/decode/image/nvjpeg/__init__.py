"""Decoding on the JPEG engines of NVIDIA GPUs."""
