"""NVRTC, NVIDIA's compiler of CUDA C++ at run time, through cuda.bindings."""

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

_DIGEST = hashlib.sha256().digest_size


@functools.cache
def is_available() -> bool:
    """Return True where NVRTC can be loaded: it comes with the CUDA extras."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception:  # of many classes: no package, no library, none that it knows
        return False
    return True


@functools.cache
def compile_to_ptx(source: str, oldest: int) -> str:
    """Return the PTX of CUDA C++, which runs on an architecture and on all newer ones.

    Args:
      source: the program; its kernels are `extern "C"`.
      oldest: the architecture, such as 70; the first after it where NVRTC no longer knows it.

    Raises:
      RuntimeError: NVRTC cannot compile it.
      ImportError: cuda-bindings is missing.
    """
    from cuda.bindings import nvrtc

    known = _checked(nvrtc.nvrtcGetSupportedArchs())
    architecture = min(number for number in known if number >= oldest)

    def compile() -> bytes:
        program = _compile(source, f"compute_{architecture}")
        code = bytes(_checked(nvrtc.nvrtcGetPTXSize(program)))
        _checked(nvrtc.nvrtcGetPTX(program, code))
        return code.rstrip(b"\0")

    return _kept_on_disk(source, f"compute_{architecture}", compile).decode()


@functools.cache
def compile_to_cubin(source: str, architecture: int) -> bytes:
    """Return the machine code of CUDA C++ for one architecture, such as 90.

    The rest is as in `compile_to_ptx`.
    """
    from cuda.bindings import nvrtc

    def compile() -> bytes:
        program = _compile(source, f"sm_{architecture}")
        code = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        return code

    return _kept_on_disk(source, f"sm_{architecture}", compile)


def _kept_on_disk(source: str, architecture: str, compile: Callable[[], bytes]) -> bytes:
    """Return code from JAX's folder of compiled programs, where one is used, or compile it."""
    from cuda.bindings import nvrtc

    config: Any = jax.config
    folder = config.jax_compilation_cache_dir
    if not (folder and config.jax_enable_compilation_cache) or "://" in folder:
        return compile()
    key = hashlib.sha256(f"{nvrtc.nvrtcVersion()} {architecture} {source}".encode()).hexdigest()
    path = Path(folder, f"jaxaug-nvrtc-{key}")
    with contextlib.suppress(OSError):
        kept = path.read_bytes()
        if hashlib.sha256(kept[_DIGEST:]).digest() == kept[:_DIGEST]:  # else cut by a crash
            return kept[_DIGEST:]
    code = compile()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            written = Path(own, path.name)
            written.write_bytes(hashlib.sha256(code).digest() + code)
            written.replace(path)  # so that others see all of it or nothing
    return code


def _compile(source: str, architecture: str) -> Any:
    """Return NVRTC's program, compiled; raise with its log where it cannot be."""
    from cuda.bindings import nvrtc

    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"jaxaug.cu", 0, [], []))
    options = [f"--gpu-architecture={architecture}".encode()]
    result = nvrtc.nvrtcCompileProgram(program, len(options), options)
    # Of size 1 where there is nothing to say: `b" " * 1` would be the one space of the process, and
    # NVRTC would write a zero over it.
    log = bytes(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    nvrtc.nvrtcGetProgramLog(program, log)
    _checked(result, log)
    return program


def _checked(result: tuple[Any, ...], log: bytes = b"") -> Any:
    """Return the value of NVRTC's result; raise with the log where it is an error."""
    status, *values = result
    if status.value != 0:  # NVRTC_SUCCESS
        text = f"{status.name}\n{log.rstrip(bytes(1)).decode()}".strip()
        raise RuntimeError(f"NVRTC cannot compile jaxaug's CUDA kernels: {text}.")
    return values[0] if values else None
