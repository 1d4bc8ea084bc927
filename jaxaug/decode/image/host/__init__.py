"""Decoding on the host: libjpeg-turbo and Pillow in threads."""
