"""The mean average precision of found boxes, in NumPy."""

from typing import NamedTuple

import numpy as np


class Boxes(NamedTuple):
    """The boxes of one image: xyxy [n, 4], labels [n], and scores [n] if they were found."""

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray | None = None


def mean_average_precision(
    found: list[Boxes], given: list[Boxes], num_classes: int, least_iou: float = 0.5
) -> float:
    """Return the mean over the classes of the area under precision over recall.

    A found box is right if it overlaps a given one of its class, which no better one has taken, by
    an IoU of at least `least_iou`. Precision is made monotone, as in PASCAL VOC 2010 and COCO.
    """
    values = []
    for label in range(num_classes):
        right, scores, total = [], [], 0
        for own, true in zip(found, given, strict=True):
            assert own.scores is not None
            mine = own.labels == label
            theirs = true.boxes[true.labels == label]
            order = np.argsort(-own.scores[mine], kind="stable")
            right.append(matches(own.boxes[mine][order], theirs, least_iou))
            scores.append(own.scores[mine][order])
            total += len(theirs)
        if total:
            values.append(area_under(np.concatenate(right), np.concatenate(scores), total))
    return float(np.mean(values))


def matches(found: np.ndarray, given: np.ndarray, least_iou: float) -> np.ndarray:
    """Return bool[n], True for the found boxes, best first, that are right."""
    overlaps = iou(found, given)
    free = np.ones(len(given), bool)
    right = np.zeros(len(found), bool)
    for row in range(len(found)):
        candidates = np.where(free, overlaps[row], -1.0)
        if len(given) and candidates.max() >= least_iou:
            right[row] = True
            free[candidates.argmax()] = False
    return right


def iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the intersection over union of boxes [n, 4] and [m, 4], [n, m]."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    common = np.prod(np.maximum(high - low, 0.0), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second)]
    return common / np.maximum(areas[0][:, None] + areas[1][None, :] - common, 1e-9)


def area_under(right: np.ndarray, scores: np.ndarray, total: int) -> float:
    """Return the average precision of found boxes, of `total` given ones."""
    right = right[np.argsort(-scores, kind="stable")]
    hits = np.cumsum(right)
    precision = hits / np.arange(1, len(right) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float(precision[right].sum() / total)
