"""Videos on NVIDIA's engines: the same planes as the host's, in device memory."""
