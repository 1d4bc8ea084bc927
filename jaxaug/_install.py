"""The versions of packages, and for messages the commands that install those of an extra.

They name the packages themselves: "jaxaug[tfds]" means something to pip only where an index has
jaxaug.
"""

import importlib.metadata
import re


def install_command(extra: str) -> str:
    """Return the pip command for the packages of an extra.

    Example:
      >>> install_command("parquet").startswith("pip install ")
      True
    """
    try:
        requirements = importlib.metadata.requires("jaxaug") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    packages = [f'"{name}"' for name in _packages(requirements, extra)]
    if not packages:  # run from a clone that was not installed, or before the extra was added
        return f'pip install -e ".[{extra}]" in the clone of jaxaug'
    return f"pip install {' '.join(packages)}"


def install_gpu_command() -> str:
    """Return the pip commands for decoding on NVIDIA GPUs, of either version of CUDA."""
    return f"{install_command('cuda13')}, or for CUDA 12 {install_command('cuda12')}"


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of packages by name, "missing" of what is not installed.

    Example:
      >>> installed_versions("no-such-package")
      {'no-such-package': 'missing'}
    """
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "missing"
    return versions


def _packages(requirements: list[str], extra: str) -> list[str]:
    """Return what an extra asks for, with the extras of jaxaug that it asks for written out."""
    packages = []
    for requirement in requirements:
        package, _, marker = requirement.partition(";")
        if marker.replace('"', "'").strip() != f"extra == '{extra}'":
            continue
        other = re.fullmatch(r"jaxaug\[(.+)\]", package.strip())
        found = [package.strip()] if other is None else _packages(requirements, other.group(1))
        packages.extend(found)
    return packages
