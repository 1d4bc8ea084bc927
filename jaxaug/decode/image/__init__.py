"""Images: from bytes to canvases, on the host and by the engines of GPUs."""
