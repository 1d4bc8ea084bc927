"""The operators, a file for each family; `jaxaug.augment` exports them."""
