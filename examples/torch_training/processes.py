"""The processes that torchrun starts, joined in PyTorch and in JAX alike."""

import dataclasses
import os
import socket

import jax
import torch
import torch.distributed


@dataclasses.dataclass(frozen=True)
class Process:
    """This process among all of them.

    Attributes:
      rank: its number.
      count: how many there are.
      device: the device of its model.
    """

    rank: int
    count: int
    device: torch.device


def join_processes() -> Process:
    """Join the processes of torchrun; without torchrun this process is alone.

    In JAX each process then has one device, and `jax.devices()` are those of all processes: a
    Loader over them has one order, one epoch and one state for all.
    """
    cuda = torch.cuda.is_available()
    if "RANK" not in os.environ:
        return Process(0, 1, torch.device("cuda:0" if cuda else "cpu"))

    rank = int(os.environ["RANK"])
    count = int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ["LOCAL_RANK"])
    if cuda:
        torch.cuda.set_device(local_rank)
    torch.distributed.init_process_group("nccl" if cuda else "gloo")

    # torchrun ends the processes by SIGTERM when one fails; JAX's service would swallow it.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        f"{os.environ['MASTER_ADDR']}:{_common_port(rank)}",
        num_processes=count,
        process_id=rank,
        local_device_ids=[local_rank],
    )
    return Process(rank, count, torch.device(f"cuda:{local_rank}" if cuda else "cpu"))


def _common_port(rank: int) -> int:
    """Return a free port of the host of rank 0, the same on all processes.

    MASTER_PORT is taken: torchrun listens there.
    """
    ports = [_free_port() if rank == 0 else 0]
    torch.distributed.broadcast_object_list(ports)
    return ports[0]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


def leave_processes(process: Process) -> None:
    """Leave the process groups of both libraries."""
    if process.count > 1:
        torch.distributed.destroy_process_group()
        jax.distributed.shutdown()
