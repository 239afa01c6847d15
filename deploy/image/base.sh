#!/bin/sh
# A base image of Debian's packages, for where no registry of images is in reach. In: the image's name, then what mmdebstrap needs.
# Needs root, buildah and mmdebstrap (apt-get install buildah mmdebstrap), and a mirror of Debian.
#
#   deploy/image/base.sh localhost/debian-python
#   buildah build --build-arg BASE=localhost/debian-python --format docker --target proxy -t kafka-quota-proxy:0.2.0 -f deploy/image/Dockerfile .
set -eu
name=${1:?name of the image}
suite=${SUITE:-bookworm}
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=minbase --include=python3-minimal,python3,ca-certificates "$@" "$suite" "$folder/root.tar"
container=$(buildah from scratch)
buildah add --quiet "$container" "$folder/root.tar" / >/dev/null
buildah commit --quiet --rm "$container" "$name" >/dev/null
echo "$name"
