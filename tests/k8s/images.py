"""Loads the images of a release into a cluster that has no registry to pull from."""
import os
import re
import shlex

from kube import Failure, run

TARGETS = ("control", "compute", "compute-cuda", "reward-python", "env-python", "sandbox")


def images_of(manifests):
    """Returns the images in rendered manifests, sorted."""
    found = re.findall(r"^\s*(?:- )?image:\s*\"?([^\s\"]+)\"?\s*$", manifests, re.M)
    return sorted(set(found))


def target_of(image):
    """Returns the Dockerfile target of an image, from the suffix of its repository, or None."""
    repository = re.sub(r"(@sha256:[0-9a-f]+|:[^:/]+)$", "", image.split("@")[0])
    for target in sorted(TARGETS, key=len, reverse=True):
        if repository == target or repository.endswith(("-" + target, "/" + target)):
            return target
    return None


def loader_command(template, image, archive):
    """Splits `template` into words and fills in {image} and {archive}, without a shell."""
    words = shlex.split(template)
    if not any("{archive}" in word or "{image}" in word for word in words):
        raise Failure("--image-loader must contain {archive} or {image}")
    return [word.replace("{image}", image).replace("{archive}", archive) for word in words]


def load_images(images, archives, template, say):
    """Runs the loader for each image that the Dockerfile builds. Returns the loaded images."""
    loaded = []
    for image in images:
        target = target_of(image)
        if target is None:
            say(f"{image} is not built here: the cluster must have it or pull it")
            continue
        archive = os.path.join(archives, f"{target}.tar")
        if "{archive}" in template and not os.path.exists(archive):
            raise Failure(f"{archive} does not exist: ./dev image --target {target} --archive {archives}")
        say(f"loading {image}")
        run(loader_command(template, image, archive), timeout=600)
        loaded.append(image)
    return loaded
