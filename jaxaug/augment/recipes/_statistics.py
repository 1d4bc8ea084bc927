"""Means and standard deviations of data sets, per channel, RGB in [0, 1]."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""The mean of ImageNet's training images, as torchvision's references have it."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""The standard deviation of ImageNet's training images, as torchvision's references have it."""

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
"""The mean of CIFAR-10's 50,000 training images."""

CIFAR10_STD = (0.2470, 0.2435, 0.2616)
"""The standard deviation of CIFAR-10's 50,000 training images."""
