#!/usr/bin/env python3
"""Checks the files of a release: checksums, the container image and the bill of materials.

It shares no code with the scripts that write them, so that a mistake there does not hide here.
"""

import gzip
import hashlib
import io
import json
import pathlib
import re
import sys
import tarfile

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
REFERENCE = re.compile(r"sha256:[0-9a-f]{64}")
# Words of SPDX expressions.
LICENCE = re.compile(r"[A-Za-z0-9.+-]+|\(|\)")


class Wrong(Exception):
    """A file of the release that is not as it should be."""


def require(holds, text):
    if not holds:
        raise Wrong(text)


def check_sums(folder):
    listed = {}
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    present = {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    require(set(listed) == present, f"SHA256SUMS lists {sorted(listed)}, but the folder has {sorted(present)}")
    for name, digest in listed.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        require(found == digest, f"{name} has the SHA-256 checksum {found}; SHA256SUMS says {digest}")


def contents(data):
    """Returns the entries of a tar file and the contents of its files."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        entries = tar.getmembers()
        files = {entry.name: tar.extractfile(entry).read() for entry in entries if entry.isfile()}
    return entries, files


class Image:
    """The files of an image layout."""

    def __init__(self, path):
        entries, self.files = contents(path.read_bytes())
        names = [entry.name for entry in entries]
        require(names == sorted(set(names)), f"{path.name}: its entries are not in order, or not unique")
        self.used = set()

    def json(self, name):
        require(name in self.files, f"the image has no {name}")
        self.used.add(name)
        return json.loads(self.files[name])

    def blob(self, descriptor):
        """Returns the content that a descriptor names, once its size and digest have been checked."""
        digest = descriptor["digest"]
        require(REFERENCE.fullmatch(digest), f"{digest} is not a SHA-256 digest")
        name = "blobs/" + digest.replace(":", "/")
        require(name in self.files, f"the image has no {name}")
        content = self.files[name]
        self.used.add(name)
        require(len(content) == descriptor["size"], f"{name} has {len(content)} bytes; its descriptor says {descriptor['size']}")
        found = hashlib.sha256(content).hexdigest()
        require(digest == f"sha256:{found}", f"{name} has the digest {found}")
        return content


def check_layer(tar):
    """Returns the entries of a layer by path, once owners, order and paths have been checked."""
    entries, _ = contents(tar)
    names = [entry.name for entry in entries]
    require(names == sorted(set(names)), "the entries of a layer are not in order, or not unique")
    require(len({entry.mtime for entry in entries}) == 1, "the entries of a layer have different times")
    for entry in entries:
        safe = not entry.name.startswith("/") and ".." not in entry.name.split("/")
        require(safe, f"a layer has the path {entry.name}")
        require(entry.isfile() or entry.isdir(), f"{entry.name} is neither a file nor a folder")
        require(not entry.isfile() or entry.mode & 0o6022 == 0, f"{entry.name} has the mode {entry.mode:o}")
    return {entry.name: entry for entry in entries}


def check_root(root, user):
    """Checks the root file system of the image: what carom needs, and with which rights."""
    program = root.get("usr/bin/carom")
    require(program and program.mode == 0o755 and program.uid == 0, "usr/bin/carom is missing, or has wrong rights")
    require(any("/ld-" in name for name in root), "the image has no dynamic linker")
    require("etc/ssl/certs/ca-certificates.crt" in root, "the image has no CA certificates")
    data = root.get("var/lib/carom")
    require(data and data.mode == 0o700 and data.uid == data.gid == 990, "var/lib/carom does not belong to user 990 alone")
    require(user == "carom", f"the image runs as {user!r}")
    owners = {entry.uid for name, entry in root.items() if name != "var/lib/carom"}
    require(owners == {0}, f"files of the image belong to the users {sorted(owners)}")


def check_image(path):
    image = Image(path)
    require(image.json("oci-layout") == {"imageLayoutVersion": "1.0.0"}, "oci-layout names another version")
    index = image.json("index.json")
    require(index["schemaVersion"] == 2 and len(index["manifests"]) == 1, "index.json does not have one manifest")
    of_manifest = index["manifests"][0]
    require(of_manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json", "the manifest has another media type")
    manifest = json.loads(image.blob(of_manifest))
    require(manifest["schemaVersion"] == 2, "the manifest has another schema")
    require(manifest["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json", "the configuration has another media type")
    config = json.loads(image.blob(manifest["config"]))
    platform = {"architecture": config["architecture"], "os": config["os"]}
    require(of_manifest["platform"] == platform, "index.json and the configuration name different platforms")
    root, diff_ids = {}, []
    for layer in manifest["layers"]:
        require(layer["mediaType"] == LAYER, f"a layer has the media type {layer['mediaType']}")
        tar = gzip.decompress(image.blob(layer))
        diff_ids.append("sha256:" + hashlib.sha256(tar).hexdigest())
        root.update(check_layer(tar))
    require(config["rootfs"] == {"type": "layers", "diff_ids": diff_ids}, "the configuration lists other layers")
    # Docker refuses an image whose history has another number of layers.
    require(len(config["history"]) == len(diff_ids), "the history has another number of layers")
    check_root(root, config["config"]["User"])
    # What `docker load` reads before it knows of the layout.
    path_of = lambda descriptor: "blobs/" + descriptor["digest"].replace(":", "/")
    tag = "carom:" + config["config"]["Labels"]["org.opencontainers.image.version"]
    expected = [{"Config": path_of(manifest["config"]), "RepoTags": [tag], "Layers": [path_of(layer) for layer in manifest["layers"]]}]
    require(image.json("manifest.json") == expected, "manifest.json and the layout differ")
    name = of_manifest["annotations"]["io.containerd.image.name"]
    require(name == f"docker.io/library/{tag}", f"the layout names the image {name}, and manifest.json {tag}")
    unused = set(image.files) - image.used
    require(not unused, f"nothing refers to {sorted(unused)}")


def check_licence(component):
    expression = component["licenses"][0]["expression"]
    require(expression and not LICENCE.sub("", expression).strip(), f"{component['name']}: {expression!r} is not an SPDX expression")


def check_bill(path):
    bill = json.loads(path.read_text())
    require((bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1), f"{path.name} has another format")
    require(re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"]), "the serial number is not a UUID")
    top = bill["metadata"]["component"]
    components = [top] + bill["components"]
    references = [component["bom-ref"] for component in components]
    require(len(references) == len(set(references)), "two components have the same reference")
    for component in components:
        require(component["version"] and component["purl"].startswith("pkg:"), f"{component['name']} has no version or purl")
        require(component["type"] == "application" or component["scope"] in ("required", "excluded"), f"{component['name']} has no scope")
        check_licence(component)
    known, edges = set(references), {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    require(set(edges) == known, "the dependencies are not those of the components")
    reached, waiting = set(), [top["bom-ref"]]
    while waiting:
        reference = waiting.pop()
        require(reference in known, f"a component depends on {reference}, which is not listed")
        if reference not in reached:
            reached.add(reference)
            waiting += edges[reference]
    require(reached == known, f"nothing needs {sorted(known - reached)}")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("Checks the files of a release.\n\nUsage: deploy/release/check.py DIR", file=sys.stderr)
        sys.exit(2)
    folder = pathlib.Path(sys.argv[1])
    try:
        check_sums(folder)
        images, bills = sorted(folder.glob("*-image.tar")), sorted(folder.glob("*.cdx.json"))
        require(images and bills, f"{folder} has no image or no bill of materials")
        for image in images:
            check_image(image)
        for path in bills:
            check_bill(path)
    except (Wrong, OSError, ValueError, KeyError, tarfile.TarError) as error:
        sys.exit(f"check.py: {error if isinstance(error, (Wrong, OSError)) else repr(error)}")
    print(f"{folder}: checksums, {len(images)} image, {len(bills)} bill of materials")


main()
