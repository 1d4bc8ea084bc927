"""Images whose pixels are more than 8 bits or other than colors: read whole, at full depth."""
