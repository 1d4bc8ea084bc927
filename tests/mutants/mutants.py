"""Faults put into the package one at a time, each with the test that must notice it."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """A fault: one piece of source replaced by another.

    Attributes:
      file: below jaxaug/.
      before: the piece, which stands in the file exactly once.
      after: what replaces it.
      test: of tests/, a name as pytest takes it, that must fail.
    """

    file: str
    before: str
    after: str
    test: str


MUTANTS = {
    "the coin of p is drawn from the key of the parameters": Mutant(
        "augment/_base/operator.py",
        "random.coin(jax.random.fold_in(key, _COIN), p)",
        "random.coin(key, p)",
        "test_draws.py::test_the_coin_says_nothing_about_the_parameters[RandomRotation]",
    ),
    "p is ignored by pointwise transforms": Mutant(
        "augment/_chain/transform.py",
        "        return chosen(drawn.applied, result, image)\n",
        "        return result\n",
        "test_contract.py::test_never_is_the_identity[RandomInvert]",
    ),
    "every transform of a chain is given the same key": Mutant(
        "augment/_chain/compose.py",
        "drawn = transform.draw(jax.random.fold_in(key, number), state.info)",
        "drawn = transform.draw(jax.random.fold_in(key, 0), state.info)",
        "augment/chain/test_compose.py::test_keys",
    ),
    "the key of a record does not depend on the epoch": Mutant(
        "iterators/loader/keys.py",
        'jnp.asarray(epoch, "uint32").reshape(-1, 1)',
        'jnp.asarray(epoch, "uint32").reshape(-1, 1) * 0',
        "iterators/loader/test_keys.py::test_sample_keys_belong_to_epoch_and_record",
    ),
    "masks are moved as if the whole canvas were used": Mutant(
        "augment/_warp/targets.py",
        "read_exactly(planes, extent, warp, settings.padding_mode, fill)",
        "read_exactly(planes, planes.shape[:2], warp, settings.padding_mode, fill)",
        "augment/warp/test_masks.py::test_masks_go_where_the_image_goes_and_are_filled_around_it",
    ),
    "a field counts its numbers in the order of its shape": Mutant(
        "augment/random.py",
        "    words = jax.random.bits(key, (2,), jnp.uint32)  # of a key of any implementation\n",
        "    return jax.random.bits(key, shape, jnp.uint32)\n",
        "augment/test_random.py::test_a_field_depends_on_the_place_alone[uniform_field]",
    ),
    "elastic's nodes beyond the image count": Mutant(
        "augment/_ops/elastic.py",
        "    if info.size is None:\n        return field\n",
        "    return field\n",
        "augment/ops/test_elastic.py::test_a_canvas_displaces_nothing",
    ),
    "wrap reads the last pixel at the seam": Mutant(
        "augment/_base/axis.py",
        "jnp.floor((index + 0.5) / period)",
        "jnp.floor(index / period)",
        "augment/warp/test_interpolate.py::test_padding_at_every_length",
    ),
    "reflect and symmetric are swapped": Mutant(
        "augment/_base/axis.py",
        'elif mode == "reflect":',
        'elif mode == "symmetric":',
        "augment/warp/test_interpolate.py::test_crop_past_the_border_is_padding",
    ),
    "a Gaussian blur shifts by half a pixel": Mutant(
        "augment/_ops/blur.py",
        "distances = np.arange(taps, dtype=np.float32) - np.float32(taps // 2)\n"
        "    return _normalized(jnp.exp(",
        "distances = np.arange(taps, dtype=np.float32) - np.float32(taps / 2)\n"
        "    return _normalized(jnp.exp(",
        "augment/ops/test_filters.py::test_blurs_do_not_shift",
    ),
    "filters are mirrored at the edge of the canvas": Mutant(
        "augment/_base/info.py",
        "info_of(image, size).border(axis, index)",
        "info_of(image, None).border(axis, index)",
        "test_contract.py::test_the_unused_part_is_not_read[BoxBlur]",
    ),
    "the hue stays": Mutant(
        "augment/_ops/hsv.py",
        "+ 6 * turns",
        "+ 0 * turns",
        "augment/ops/test_color.py::test_hue",
    ),
    "color jitter has one order": Mutant(
        "augment/_ops/color.py",
        "lax.sort_key_val(numbers[4:][: len(components)], components)[1]",
        "components",
        "augment/ops/test_color.py::test_jitter_draws_orders_and_factors_uniformly_and_apart",
    ),
    "boxes through a displacement are the hulls of their corners": Mutant(
        "augment/_warp/boxes.py",
        "_SIDE_POINTS if warp.displacements else 1",
        "1",
        "augment/warp/test_warp.py::test_boxes_through_a_displacement_are_hulls_of_their_sides",
    ),
    "keypoints are half a pixel off": Mutant(
        "augment/_warp/boxes.py",
        "warp.push(*points[:, :2].astype(jnp.float32).T)",
        "warp.push(*(points[:, :2].astype(jnp.float32) + 0.5).T)",
        "augment/chain/test_compose.py::test_keypoints_go_where_the_image_goes",
    ),
    "the antialiasing looks past the crop": Mutant(
        "augment/_base/axis.py",
        "    if axis.window is not None:\n",
        "    if axis.window is not None and axis.framed:\n",
        "augment/warp/test_interpolate.py::test_resized_crop_equals_pil_and_does_not_look_past_the_crop",
    ),
    "shrinking is not antialiased": Mutant(
        "augment/_base/axis.py",
        "return math.ceil(width - 1e-4)",
        "return 2 * kernel.radius",
        "augment/warp/test_interpolate.py::test_resize_equals_pil",
    ),
    "a choice among warps is always the first": Mutant(
        "augment/_warp/warp.py",
        "chosen = jnp.where(index == i, values[i], chosen)",
        "chosen = jnp.where(index == i, chosen, chosen)",
        "augment/chain/test_control.py::test_a_choice_among_all_kinds_is_the_branch",
    ),
    "the highest of the integers is never drawn": Mutant(
        "augment/random.py",
        "(high - low).astype(jnp.float32)",
        "(high - low - 1).astype(jnp.float32)",
        "augment/chain/test_transform.py::test_random_numbers_are_uniform",
    ),
    "labels are mixed by the share of the partner": Mutant(
        "augment/_ops/mix.py",
        'share * own["label"] + (1 - share) * partner["label"]',
        '(1 - share) * own["label"] + share * partner["label"]',
        "augment/ops/test_mix.py::test_pixels_and_labels_are_mixed_as_numpy_mixes_them",
    ),
    "both images of a pair are mixed by the weight of the first": Mutant(
        "augment/_ops/mix.py",
        "return jax.vmap(self._mixed)(params, group, partners)",
        "params = params._replace(weight=params.weight[:1].repeat(2))\n"
        "        return jax.vmap(self._mixed)(params, group, partners)",
        "augment/ops/test_mix.py::test_pixels_and_labels_are_mixed_as_numpy_mixes_them",
    ),
    "every epoch has the same shuffle": Mutant(
        "iterators/samplers/sampler.py",
        "stream(_keys(seed, epoch), _ROUNDS)",
        "stream(_keys(seed, 0), _ROUNDS)",
        "iterators/samplers/test_sampler.py::test_seeds_and_epochs_differ_and_do_not_mirror",
    ),
    "a tail too short for a batch is delivered": Mutant(
        "iterators/loader/state.py",
        "needed = batch_size if drop else 1",
        "needed = 1",
        "iterators/loader/test_state.py::test_an_epoch_is_cut_into_len_batches",
    ),
    "the EXIF orientations 6 and 8 are swapped": Mutant(
        "decode/image/orientation.py",
        "    (True, True, False),\n    (True, True, True),\n    (True, False, True),\n",
        "    (True, False, True),\n    (True, True, True),\n    (True, True, False),\n",
        "decode/image/test_orientation.py::test_pixels_and_sizes_are_those_of_pillow",
    ),
}
