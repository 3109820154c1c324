#!/bin/sh
# Checks the patches in an image; nothing of the image is run.
#
#     check_image.sh IMAGE [PATCH|SET …]
#
# TOOL names what brings the image to disk: podman, buildah, docker or skopeo (with umoci; IMAGE is then a name of skopeo's,
# as docker://registry/name:tag). Without it, the first that is there. PATCHKIT names the command, if it is not on PATH.
# The exit code is patchkit's: 0 all in place, 1 a finding, 2 a wrong command line.
set -eu

image=${1:?usage: check_image.sh IMAGE [PATCH|SET …]}
patchkit=${PATCHKIT:-patchkit}
tool=${TOOL:-}
for name in podman buildah docker skopeo; do
  if [ -z "$tool" ] && command -v "$name" >/dev/null; then tool=$name; fi
done

# Without root, podman and buildah mount only in a user name space of their own.
case $tool in
  podman | buildah) if [ "$(id -u)" != 0 ]; then exec "$tool" unshare "$0" "$@"; fi ;;
esac
shift

work=$(mktemp -d)
leave() {
  case $tool in
    podman) podman image unmount "$image" ;;
    buildah) if [ -n "${container-}" ]; then buildah rm "$container"; fi ;;
    docker) if [ -n "${container-}" ]; then docker rm "$container"; fi ;;
  esac >/dev/null || true
  # An image's folders can be without the right to write.
  chmod -R u+rwX "$work" && rm -rf "$work"
}
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

case $tool in
  podman)
    root=$(podman image mount "$image")
    ;;
  buildah)
    container=$(buildah from --pull-never "$image")
    root=$(buildah mount "$container")
    ;;
  docker)
    # A container that is made and never started. Its devices are nobody's business here.
    container=$(docker create "$image" none)
    root=$work/root
    mkdir "$root"
    docker export --output "$work/image.tar" "$container"
    tar --extract --file "$work/image.tar" --directory "$root" --no-same-owner --exclude 'dev/*'
    ;;
  skopeo)
    skopeo copy --quiet "$image" "oci:$work/layout:image"
    umoci unpack --rootless --image "$work/layout:image" "$work/bundle"
    root=$work/bundle/rootfs
    ;;
  *)
    echo "check_image.sh: none of podman, buildah, docker and skopeo is here" >&2
    exit 2
    ;;
esac

"$patchkit" --root "$root" check -- "$@"
