"""A Loader's batches for other frameworks, and for the eye."""
