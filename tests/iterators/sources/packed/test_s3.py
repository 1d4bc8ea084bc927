"""An object store: listing, reading, change and removal, by moto's server."""

import numpy as np
import pytest

from jaxaug.__main__ import main
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.webdataset import WebDataset
from jaxaug.iterators.sources.storage import remote
from tests.iterators.sources.packed.test_remote import take_client, two_versions

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A client of boto for a bucket "images" of a server of this machine."""
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    s3fs = pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(port=0)
    server.start()
    _, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "KEY",
        "AWS_SECRET_ACCESS_KEY": "SECRET",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket="images")
    yield client
    server.stop()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_shards_in_a_bucket(bucket, monkeypatch, client):
    take_client(monkeypatch, client)
    images, _, before, after = two_versions()
    for name in ("x-0.tar", "x-1.tar"):
        bucket.put_object(Bucket="images", Key=f"train/{name}", Body=before)
    source = WebDataset("s3://images/train/x-*.tar", timeout=5)
    found = source.read(np.arange(8))["image"]
    assert [bytes(found.view(row)) for row in range(8)] == images * 2
    stores = [store for store in remote._stores.found.values() if store is not None]
    assert bool(stores) == (client == "obstore")

    bucket.put_object(Bucket="images", Key="train/x-1.tar", Body=after)
    with pytest.raises(SourceError, match=r"x-1.tar' changed since it was indexed"):
        source.read(np.arange(8))
    bucket.delete_object(Bucket="images", Key="train/x-1.tar")
    with pytest.raises(SourceError, match=r"x-1.tar' cannot be (read|opened)") as caught:
        source.read(np.arange(8))
    assert "SECRET" not in str(caught.value)
    assert len(WebDataset("s3://images/train/x-*.tar")) == 4


def test_an_index_in_a_bucket(bucket):
    images, _, before, after = two_versions()
    for name, shard in (("x-0.tar", before), ("x-1.tar", before)):
        bucket.put_object(Bucket="images", Key=f"train/{name}", Body=shard)
    paths = "s3://images/train/x-*.tar"
    for part in range(2):
        command = ["index", paths, "--out", "s3://images/indexes/", "--part", f"{part}/2"]
        assert main(command) == 0
    source = WebDataset(paths, index="s3://images/indexes/")
    keys = [each["Key"] for each in bucket.list_objects_v2(Bucket="images")["Contents"]]
    assert len([key for key in keys if key.startswith("indexes/")]) == 3
    trusted = {"index": source.index_path, "trust_index": True}
    for opened in (source, WebDataset("s3://images/train/x-{0..1}.tar", **trusted)):
        found = opened.read(np.arange(8))["image"]
        assert [bytes(found.view(row)) for row in range(8)] == images * 2
    bucket.put_object(Bucket="images", Key="train/x-1.tar", Body=after)
    assert WebDataset(paths, index="s3://images/indexes/").fingerprint() != source.fingerprint()
    with pytest.raises(SourceError, match=r"no index can be written to 's3://missing/a\.index'"):
        WebDataset("s3://images/train/x-0.tar", index="s3://missing/a.index")
