"""From bytes to headers: which images are good, and what is known of each before it is decoded."""
