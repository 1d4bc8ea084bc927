"""CUDA C++ compiled at run time, which needs no GPU."""

import jax
import pytest

from jaxaug import _nvrtc

SOURCE = 'extern "C" __global__ void add(int* sum) { atomicAdd(sum, 1); }'

pytestmark = pytest.mark.skipif(not _nvrtc.is_available(), reason="NVRTC is not installed")


@pytest.mark.parametrize(
    "compile",
    [lambda: _nvrtc.compile_to_ptx(SOURCE, 75), lambda: _nvrtc.compile_to_cubin(SOURCE, 90)],
)
def test_code_is_kept_in_the_folder_of_compiled_programs(tmp_path, monkeypatch, compile):
    def forget():
        _nvrtc.compile_to_ptx.cache_clear()
        _nvrtc.compile_to_cubin.cache_clear()

    forget()
    fresh = compile()
    folder = tmp_path / "new"
    before = jax.config.jax_compilation_cache_dir
    enabled = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_compilation_cache_dir", str(folder))
    try:
        forget()
        assert compile() == fresh
        (kept,) = folder.iterdir()
        kept.write_bytes(kept.read_bytes()[:-1])  # damaged, as by a crash
        forget()
        assert compile() == fresh
        monkeypatch.setattr(_nvrtc, "_compile", None)
        forget()
        assert compile() == fresh
        kept.unlink()
        forget()
        with pytest.raises(TypeError):  # not from the memory of this process
            compile()
        monkeypatch.undo()
        jax.config.update("jax_enable_compilation_cache", False)
        assert compile() == fresh
        assert not list(folder.iterdir())
    finally:
        jax.config.update("jax_enable_compilation_cache", enabled)
        jax.config.update("jax_compilation_cache_dir", before)
        forget()
