"""Brings the images that a release names into a cluster that has no registry to pull them from."""
import os
import re
import shlex

from kube import Failure, run

TARGETS = ("control", "compute", "compute-cuda")


def images_of(manifests):
    """The images that rendered manifests name, sorted."""
    found = re.findall(r"^\s*(?:- )?image:\s*\"?([^\s\"]+)\"?\s*$", manifests, re.M)
    return sorted(set(found))


def target_of(image):
    """Which target of the Dockerfile makes the image, by the end of its repository's name; None: none."""
    repository = re.sub(r"(@sha256:[0-9a-f]+|:[^:/]+)$", "", image.split("@")[0])
    for target in sorted(TARGETS, key=len, reverse=True):
        if repository == target or repository.endswith(("-" + target, "/" + target)):
            return target
    return None


def loader_command(template, image, archive):
    """The words of `template` with {image} and {archive} filled in; no shell reads them."""
    words = shlex.split(template)
    if not any("{archive}" in word or "{image}" in word for word in words):
        raise Failure("--image-loader names neither {archive} nor {image}: it could not know what to load")
    return [word.replace("{image}", image).replace("{archive}", archive) for word in words]


def load_images(images, archives, template, say):
    """Runs the loader once for each image that the Dockerfile makes. Returns the names that were loaded."""
    loaded = []
    for image in images:
        target = target_of(image)
        if target is None:
            say(f"{image} is none of ours: the cluster has to have it or pull it")
            continue
        archive = os.path.join(archives, f"{target}.tar")
        if "{archive}" in template and not os.path.exists(archive):
            raise Failure(f"{archive} is not there: ./dev image --target {target} --archive {archives}")
        say(f"loading {image}")
        run(loader_command(template, image, archive), timeout=600)
        loaded.append(image)
    return loaded
