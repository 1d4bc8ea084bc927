"""CUDA kernels for the steps of a chain that XLA computes slowly on GPUs.

Each module holds one kernel and the function that stands for it in a traced program. Where they are
not available, and on all other devices, the same step is computed by XLA: see `choice.on_gpu`.
"""
