"""The network: convolutions, group normalization, and a linear layer on their mean."""

import torch
from torch import nn

_GROUPS = 8


def make_model(classes: int, widths: tuple[int, ...] = (32, 64, 128)) -> nn.Sequential:
    """Return a network for images [B, 3, H, W]; each width halves the side of the image.

    Group normalization, so that a sample's result does not depend on the other rows of its process.
    """
    layers: list[nn.Module] = []
    channels = 3
    for width in widths:
        layers += [
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    model = nn.Sequential(*layers)
    model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return model
