# The paths of a node that give access to its GPUs.
package sluice.lib.paths

# exposes_devices: a path of the node equals a guarded path, or one contains the other.
exposes_devices(path) if {
	cleaned := clean(path)
	some guarded in guarded_paths
	overlaps(cleaned, guarded)
}

# The device files of GPUs: /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-caps.
exposes_devices(path) if strings.any_prefix_match(clean(path), device_prefixes)

# requests_devices: a mount at this path requests devices from the NVIDIA container
# toolkit.
requests_devices(path) if ".." in split(path, "/")

requests_devices(path) if {
	contains(path, "nvidia-container-devices") # a fast check, which most paths fail
	some guarded in ["/var/run/nvidia-container-devices", "/run/nvidia-container-devices"]
	within(clean(path), guarded)
}

# is_device_path: the path in a container is a device path of GPUs, or requests devices.
is_device_path(path) if requests_devices(path)

is_device_path(path) if strings.any_prefix_match(clean(path), device_prefixes)

device_prefixes := {"/dev/nvidia", "/dev/dri", "/dev/kfd", "/dev/vfio"}

guarded_paths := {
	"/dev/char",
	"/dev/nvidia0",
	"/etc/cdi",
	"/dev/kfd",
	"/dev/vfio",
	# /proc contains the root directories of the node's processes, and with them the
	# node's /dev.
	"/proc",
	"/sys/bus/pci",
	"/sys/class/drm",
	# Static pods from this directory bypass all admission.
	"/etc/kubernetes",
	# The files of the driver, and the sockets of MPS.
	"/run/nvidia",
	"/var/run/nvidia",
	"/tmp/nvidia-mps",
	"/var/run/nvidia-container-devices",
	"/run/cdi",
	"/var/run/cdi",
	# Clients of these sockets can create containers with any device.
	"/run/containerd",
	"/var/run/containerd",
	"/run/crio",
	"/var/run/crio",
	"/run/docker.sock",
	"/var/run/docker.sock",
	"/run/k3s",
	"/var/run/k3s",
	"/run/cri-dockerd.sock",
	"/var/run/cri-dockerd.sock",
	"/run/dockershim.sock",
	"/var/run/dockershim.sock",
	"/run/podman",
	"/var/run/podman",
	"/run/buildkit",
	"/var/run/buildkit",
	"/var/lib/containerd",
	"/var/lib/docker",
	"/var/lib/kubelet",
}

overlaps(path, guarded) if within(path, guarded)

overlaps(path, guarded) if within(guarded, path)

# within: a path equals a directory, or is below it.
within(_, "/")

within(path, directory) if path == directory

within(path, directory) if startswith(path, sprintf("%s/", [directory]))

# clean returns a path without empty and . elements. The API server denies .. elements.
clean(path) := sprintf("/%s", [concat("/", [element | some element in split(path, "/"); not element in {"", "."}])])
