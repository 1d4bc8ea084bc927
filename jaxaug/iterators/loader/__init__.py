"""The Loader: from a plan over read, decoded and computed batches to delivered ones."""
