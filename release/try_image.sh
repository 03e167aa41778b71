#!/usr/bin/env bash
# Builds the image of the Dockerfile without a daemon and without a hub, and enlarges a picture and a film with it.
#
#   release/try_image.sh          as root, with buildah and debootstrap; about four minutes
#
# The base is made of Debian's packages: Debian 13 with its Python 3.13, as python:3.13-slim is.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in buildah debootstrap; do
    command -v "$tool" >/dev/null || { echo "$tool is not here" >&2; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "only root can do this" >&2; exit 77; }

folder=$(mktemp -d)
container=
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$folder/images" --runroot "$folder/run" "$@"; }
cleanup() {
    [ -z "$container" ] || buildah umount "$container" >/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT

echo "the base"
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates trixie "$folder/base" \
    >"$folder/log" 2>&1 || { tail -5 "$folder/log" >&2; exit 1; }
container=$(buildah from scratch)
buildah add -q "$container" "$folder/base" / >/dev/null
buildah commit -q "$container" localhost/base >/dev/null
rm -rf "$folder/base"

echo "the image"
# This machine's certificates: its network may have some of its own.
buildah build -q --pull-never --build-arg PYTHON=localhost/base \
    --volume /etc/ssl/certs:/etc/ssl/certs:ro --tag localhost/waifu2x .

echo "a picture"
container=$(buildah from --pull-never localhost/waifu2x)
buildah add -q --chown 1000 "$container" examples/drawn.png /pictures/in.png >/dev/null
# Runs a command in the image, as its user, with no compiler and no CUDA: neither is in it.
inside() { buildah run "$container" -- "$@"; }
inside sh -c 'test "$(id -u)" = 1000 && ! command -v gcc && ! command -v nvcc'
inside waifu2x --version
inside waifu2x upscale -m vgg_7 in.png out.png
inside waifu2x info out.png

echo "a film"
# Two black frames of 32x24 pixels and their chroma.
inside sh -c '{ echo "YUV4MPEG2 W32 H24 F25:1 Ip A1:1 C420jpeg"
    for frame in 1 2; do echo FRAME && head -c 1152 /dev/zero; done; } > in.y4m'
inside waifu2x video -m vgg_7 in.y4m out.mkv
inside waifu2x info out.mkv
inside sh -c 'ls /cache/waifu2x && ls /opt/waifu2x/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib'
du -sh "$(buildah mount "$container")" | cut -f1
