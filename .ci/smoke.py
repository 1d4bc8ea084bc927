"""One epoch with an installed jaxaug: what a broken package would not get through."""

import importlib.resources
import io
import sysconfig
from pathlib import Path

import numpy as np
from PIL import Image

import jaxaug
from jaxaug import Loader, augment, iterators

installed = Path(sysconfig.get_path("purelib"))
assert installed in Path(jaxaug.__file__).parents, f"imported from {jaxaug.__file__}"
assert importlib.resources.files(jaxaug).joinpath("py.typed").is_file()

file = io.BytesIO()
Image.new("RGB", (64, 48), "orange").save(file, "JPEG")
source = iterators.InMemory([file.getvalue()] * 8, {"label": np.arange(8)})
chain = augment.Compose([augment.RandomResizedCrop(32), augment.ToFloat()])

with Loader(source, batch_size=4, transform=chain) as loader:
    batches = list(loader)

shapes = [batch["image"].shape for batch in batches]
assert shapes == [(4, 32, 32, 3)] * 2, shapes
labels = sorted(int(label) for batch in batches for label in batch["label"])
assert labels == list(range(8)), labels
print("jaxaug", jaxaug.__version__, "works")
