#!/usr/bin/env python3
"""Writes a container image of carom without a container engine: an OCI image layout in a tar file.

The image has carom, the shared libraries that it needs, CA certificates and a user, and no shell. Libraries and certificates come from
the Debian packages of this machine. `podman load` reads the layout. `docker load` reads manifest.json, which older versions need, or
the layout. The same input always gives the same bytes.
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"

# The user of the Containerfile: fixed, so that it can own directories of the host.
USER = 990

# Debian's copy of Mozilla's CA certificates. /etc/ssl/certs would include those that were added to this machine.
CERTIFICATES = pathlib.Path("/usr/share/ca-certificates/mozilla")

PASSWD = f"root:x:0:0:root:/root:/usr/sbin/nologin\ncarom:x:{USER}:{USER}:carom:/var/lib/carom:/usr/sbin/nologin\n"
GROUP = f"root:x:0:\ncarom:x:{USER}:\n"
# The engine writes names of other containers into /etc/hosts.
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"


def fail(text):
    sys.exit(f"image.py: {text}")


def said(*command):
    """Returns the output of a command, or None if it fails."""
    made = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    return made.stdout if made.returncode == 0 else None


class Layer:
    """A layer in the making: files and folders by path."""

    def __init__(self):
        self.entries = {}

    def folder(self, path, mode=0o755, owner=0):
        self.parents(path)
        self.entries[path] = (None, mode, owner)

    def file(self, path, content, mode=0o644):
        self.parents(path)
        self.entries[path] = (content, mode, 0)

    def parents(self, path):
        for parent in list(pathlib.PurePosixPath(path).parents)[:-1]:
            self.entries.setdefault(str(parent), (None, 0o755, 0))

    def tar(self, time):
        """Returns the tar file of the layer, in the order of its paths."""
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path, (content, mode, owner) in sorted(self.entries.items()):
                entry = tarfile.TarInfo(path)
                entry.mtime, entry.mode, entry.uid, entry.gid = time, mode, owner, owner
                if isinstance(content, bytes):
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
                else:
                    entry.type = tarfile.DIRTYPE
                    tar.addfile(entry)
        return raw.getvalue()


def libraries(binary):
    """Returns the paths of the shared libraries that a program needs, the dynamic linker included."""
    listed = said("ldd", str(binary))
    if not listed:
        fail(f"ldd cannot read {binary}: is it a dynamically linked program of this machine?")
    if "not found" in listed:
        fail(f"this machine lacks libraries of {binary}:\n{listed}")
    found = sorted(set(re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listed, re.MULTILINE)))
    if not any("/ld-" in path for path in found):
        fail(f"ldd names no dynamic linker of {binary}:\n{listed}")
    return found


def package_of(path):
    """Returns the Debian package of a file. With a merged /usr, dpkg knows it by one of two paths."""
    other = path.removeprefix("/usr") if path.startswith("/usr/") else f"/usr{path}"
    for name in (path, other):
        owner = said("dpkg-query", "--search", name)
        if owner:
            return owner.split(":")[0]
    fail(f"{path} belongs to no Debian package, so its licence is unknown")


def put_package(layer, package):
    """Adds the licence and the description of a package. Scanners find its version in status.d."""
    copyright_file = pathlib.Path("/usr/share/doc") / package / "copyright"
    if not copyright_file.exists():
        fail(f"{copyright_file} is missing; the image must include the licence of {package}")
    layer.file(f"usr/share/doc/{package}/copyright", copyright_file.read_bytes())
    status = said("dpkg-query", "--status", package)
    if not status:
        fail(f"dpkg does not know {package}")
    layer.file(f"var/lib/dpkg/status.d/{package}", status.encode())


def system_layer(binary):
    layer = Layer()
    layer.file("etc/passwd", PASSWD.encode())
    layer.file("etc/group", GROUP.encode())
    layer.file("etc/nsswitch.conf", NSSWITCH.encode())
    layer.file("etc/os-release", pathlib.Path("/usr/lib/os-release").read_bytes())
    layer.folder("tmp", 0o1777)
    certificates = sorted(CERTIFICATES.glob("*.crt"))
    if not certificates:
        fail(f"{CERTIFICATES} has no certificates; on Debian: apt-get install ca-certificates")
    bundle = b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in certificates)
    layer.file("etc/ssl/certs/ca-certificates.crt", bundle)
    packages = {"ca-certificates"}
    for path in libraries(binary):
        layer.file(path.lstrip("/"), pathlib.Path(path).read_bytes(), 0o755)
        packages.add(package_of(path))
    for package in sorted(packages):
        put_package(layer, package)
    return layer


def carom_layer(binary, documents):
    layer = Layer()
    layer.file("usr/bin/carom", binary.read_bytes(), 0o755)
    for document in documents:
        layer.file(f"usr/share/doc/carom/{document.name}", document.read_bytes())
    layer.folder("etc/carom")
    # A new volume inherits owner and mode of this directory.
    layer.folder("var/lib/carom", 0o700, USER)
    return layer


def config(arguments, created, diff_ids):
    labels = {
        "org.opencontainers.image.title": "carom",
        "org.opencontainers.image.description": "A self-hosted URL shortener in one binary",
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.version": arguments.version,
        "org.opencontainers.image.revision": arguments.revision,
    }
    steps = ["libraries, CA certificates and the user carom", "carom"]
    return {
        "created": created,
        "architecture": arguments.arch,
        "os": "linux",
        "config": {
            "User": "carom",
            "ExposedPorts": {"8080/tcp": {}, "8081/tcp": {}},
            "Env": ["PATH=/usr/bin:/bin", "CAROM_DATA_DIR=/var/lib/carom"],
            "Entrypoint": ["carom"],
            "Cmd": ["serve"],
            "Volumes": {"/var/lib/carom": {}},
            "WorkingDir": "/",
            "Labels": labels,
            "StopSignal": "SIGTERM",
            # Docker's addition to the format, in nanoseconds. Podman needs the flag --health-cmd instead.
            "Healthcheck": {
                "Test": ["CMD", "carom", "health"],
                "Interval": 10_000_000_000,
                "Timeout": 6_000_000_000,
                "StartPeriod": 60_000_000_000,
                "Retries": 3,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created": created, "created_by": f"deploy/release/image.py: {step}"} for step in steps],
    }, labels


def as_json(value):
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def digest(content):
    return hashlib.sha256(content).hexdigest()


def layout(arguments):
    """Returns the files of the layout by path."""
    created = datetime.datetime.fromtimestamp(arguments.time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    files = {}

    def blob(media_type, content):
        files[f"blobs/sha256/{digest(content)}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest(content)}", "size": len(content)}

    tars = [layer.tar(arguments.time) for layer in (system_layer(arguments.binary), carom_layer(arguments.binary, arguments.document))]
    # mtime 0: without the current time, which would differ.
    layers = [blob(LAYER, gzip.compress(tar, arguments.level, mtime=0)) for tar in tars]
    description, labels = config(arguments, created, [f"sha256:{digest(tar)}" for tar in tars])
    of_config = blob(CONFIG, as_json(description))
    annotations = {**labels, "org.opencontainers.image.created": created}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": of_config, "layers": layers, "annotations": annotations}
    name = f"carom:{arguments.version}"
    of_manifest = blob(MANIFEST, as_json(manifest))
    of_manifest["platform"] = {"architecture": arguments.arch, "os": "linux"}
    # The first annotation is of the specification; Docker and Podman take the name of the image from the second one.
    of_manifest["annotations"] = {
        "org.opencontainers.image.ref.name": arguments.version,
        "io.containerd.image.name": f"docker.io/library/{name}",
    }
    files["oci-layout"] = as_json({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = as_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [of_manifest]})
    path = lambda descriptor: "blobs/" + descriptor["digest"].replace(":", "/")
    files["manifest.json"] = as_json([{"Config": path(of_config), "RepoTags": [name], "Layers": [path(layer) for layer in layers]}])
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path, help="the carom binary")
    parser.add_argument("--document", action="append", default=[], type=pathlib.Path, help="a file for /usr/share/doc/carom; may be repeated")
    parser.add_argument("--arch", required=True, choices=["amd64", "arm64"], help="architecture of the image")
    parser.add_argument("--version", required=True, help="version of carom")
    parser.add_argument("--revision", required=True, help="commit of the source")
    parser.add_argument("--time", required=True, type=int, help="time of all files, in seconds since 1970")
    parser.add_argument("--level", type=int, default=9, help="gzip level of the layers, 1 to 9")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the tar file to write")
    arguments = parser.parse_args()
    image = Layer()
    for path, content in layout(arguments).items():
        image.file(path, content)
    arguments.out.write_bytes(image.tar(arguments.time))


main()
