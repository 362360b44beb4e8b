#!/bin/sh
# A Podman that runs on machines without one, for the tests of commands in containers:
#
#   tools/podman_for_tests.sh /tmp/podman
#   PATH=/tmp/podman/bin:$PATH TENURE_TEST_IMAGE=tenure-test python -m pytest tests/agent/toolbox/test_command.py -k container
#
# It unpacks Debian's packages below the folder, installs nothing, and makes an image of busybox. It needs apt-get, and the right to make a mount
# namespace: each call of Podman gets an empty /sys/fs/cgroup of its own, because its runtime refuses machines with both versions of cgroups.
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
root=$folder/root

mkdir -p "$folder/packages" "$folder/bin" "$root"
cd "$folder/packages"
apt-get -o APT::Sandbox::User= download podman conmon crun libgpgme11 libassuan0 libsubid4 libyajl2 libslirp0 libseccomp2 \
    golang-github-containers-common golang-github-containers-image busybox-static
for package in *.deb; do dpkg-deb -x "$package" "$root"; done

libraries=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)
cat > "$folder/crun" <<EOF
#!/bin/sh
LD_LIBRARY_PATH=$libraries exec $root/usr/bin/crun "\$@"
EOF
cat > "$folder/containers.conf" <<EOF
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
keyring = false
log_driver = "k8s-file"
seccomp_profile = "unconfined"
[engine]
cgroup_manager = "cgroupfs"
conmon_path = ["$root/usr/bin/conmon"]
events_logger = "none"
runtime = "crun"
[engine.runtimes]
crun = ["$folder/crun"]
EOF
cat > "$folder/storage.conf" <<EOF
[storage]
driver = "vfs"
graphroot = "$folder/graph"
runroot = "$folder/run"
EOF
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > "$folder/policy.json"
cat > "$folder/bin/podman" <<EOF
#!/bin/sh
export LD_LIBRARY_PATH=$libraries CONTAINERS_CONF=$folder/containers.conf CONTAINERS_STORAGE_CONF=$folder/storage.conf HOME=\${HOME:-/root}
exec unshare --mount sh -c 'mount -t tmpfs none /sys/fs/cgroup && exec $root/usr/bin/podman "\$@"' podman "\$@"
EOF
chmod +x "$folder/crun" "$folder/bin/podman"

image=$folder/image
mkdir -p "$image/bin" "$image/work" "$image/tmp" "$image/proc" "$image/dev" "$image/etc"
cp "$root/bin/busybox" "$image/bin/"
for name in sh echo sleep cat ls pwd seq touch true; do ln -sf busybox "$image/bin/$name"; done
tar -C "$image" -cf "$folder/image.tar" .
"$folder/bin/podman" import --signature-policy "$folder/policy.json" "$folder/image.tar" tenure-test
"$folder/bin/podman" run --rm --network=none tenure-test echo "It works: PATH=$folder/bin:\$PATH TENURE_TEST_IMAGE=tenure-test"
