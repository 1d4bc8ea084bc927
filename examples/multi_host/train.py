"""Train on the devices of many hosts: one script, started once for each process.

    srun python train.py --cluster --data "shards/*.tar" --checkpoint /shared/run
    python train.py --coordinator host0:1234 --processes 2 --process 0 --data ... --checkpoint ...

Started again it goes on from the last checkpoint, on as many hosts as there are then.
"""

import argparse
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug import Loader, augment
from jaxaug.iterators import WebDataset
from jaxaug.iterators.orbax import LoaderState
from jaxaug.sharding import batch_sharding

Options = argparse.Namespace
State = dict[str, Any]
_WIDTH = 32


def parse_options() -> Options:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Train on the devices of many hosts.")
    parser.add_argument("--cluster", action="store_true", help="Slurm or Cloud TPU: JAX finds all")
    parser.add_argument("--coordinator", help="elsewhere: HOST:PORT of process 0")
    parser.add_argument("--processes", type=int, help="their number")
    parser.add_argument("--process", type=int, help="the number of this one, from 0")
    parser.add_argument("--data", required=True, help='tars, such as "shards/*.tar" or gs://...')
    parser.add_argument("--checkpoint", type=Path, required=True, help="a folder that all share")
    parser.add_argument("--save-every", type=int, default=1000, help="steps between checkpoints")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=224, help="side of the images, pixels")
    parser.add_argument("--batch-size", type=int, default=1024, help="of all processes together")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and augmentation")
    return parser.parse_args()


def join_processes(options: Options) -> None:
    """Connect the processes, before anything else asks JAX for a device; alone without options."""
    if options.cluster:
        jax.distributed.initialize()
    elif options.coordinator is not None:
        jax.distributed.initialize(options.coordinator, options.processes, options.process)


def make_loader(options: Options, sharding: NamedSharding) -> Loader:
    """Return the Loader, the same on every process; each decodes the rows of its own devices."""
    chain = augment.Compose(
        [
            augment.RandomResizedCrop(options.size),
            augment.RandomHorizontalFlip(),
            augment.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    return Loader(
        WebDataset(options.data),
        options.batch_size,
        transform=chain,
        seed=options.seed,
        on_error="replace",  # with "raise" one process would stop, and the others wait for it
        sharding=sharding,
    )


def make_optimizer(options: Options) -> optax.GradientTransformation:
    """Return the optimizer."""
    return optax.sgd(options.learning_rate, momentum=0.9)


def make_state(options: Options, sharding: NamedSharding) -> State:
    """Return new parameters on the mesh of the batches, the same on every device."""

    def initial(key: jax.Array) -> State:
        first, second = jax.random.split(key)
        params = {
            "kernel": 0.1 * jax.random.normal(first, (8, 8, 3, _WIDTH)),
            "weight": 0.1 * jax.random.normal(second, (_WIDTH, options.classes)),
        }
        return {"params": params, "optimizer": make_optimizer(options).init(params)}

    replicated = NamedSharding(sharding.mesh, PartitionSpec())
    return jax.jit(initial, out_shardings=replicated)(jax.random.key(options.seed))


def mean_loss(params: State, image: jax.Array, label: jax.Array) -> jax.Array:
    """Return the mean cross entropy of a small network: the code of one device."""
    features = jax.lax.conv_general_dilated(
        image, params["kernel"], (4, 4), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    logits = jnp.mean(jax.nn.relu(features), axis=(1, 2)) @ params["weight"]
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, label))


def make_step(options: Options):
    """Return the compiled training step; XLA adds the sums of gradients over all devices."""
    optimizer = make_optimizer(options)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: State, image: jax.Array, label: jax.Array) -> tuple[State, jax.Array]:
        loss, gradients = jax.value_and_grad(mean_loss)(state["params"], image, label)
        updates, optimizer_state = optimizer.update(gradients, state["optimizer"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "optimizer": optimizer_state}, loss

    return step


def train(options: Options, loader: Loader, state: State) -> Iterator[tuple[int, jax.Array]]:
    """Train from the last checkpoint on; yield the number and the loss of each step."""
    schedule = ocp.CheckpointManagerOptions(save_interval_steps=options.save_every, max_to_keep=2)
    with ocp.CheckpointManager(options.checkpoint.absolute(), options=schedule) as manager:
        first = manager.latest_step() or 0
        if first > 0:
            form = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
            items = {"state": ocp.args.StandardRestore(form), "loader": LoaderState(loader)}
            state = manager.restore(first, args=ocp.args.Composite(**items))["state"]

        step = make_step(options)
        for number in range(first + 1, options.steps + 1):
            batch = next(loader)
            state, loss = step(state, batch["image"], batch["label"])
            yield number, loss

            # Saves every `save_every` steps, and at the step that all reach behind a SIGTERM.
            items = {"state": ocp.args.StandardSave(state), "loader": LoaderState(loader)}
            manager.save(number, args=ocp.args.Composite(**items))
            if manager.reached_preemption(number):
                return


def main() -> None:
    """Train as the command line says, and print the losses."""
    options = parse_options()
    join_processes(options)
    sharding = batch_sharding()  # over all devices of all processes
    with make_loader(options, sharding) as loader:
        for number, loss in train(options, loader, make_state(options, sharding)):
            if jax.process_index() == 0:
                print(f"step {number}: loss {float(loss):.6f}", flush=True)


if __name__ == "__main__":
    main()
