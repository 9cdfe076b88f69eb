# The paths of a node that give access to its GPUs.
package sluice.lib.paths

# reaches_devices: a path of the node equals a guarded path, or one contains the other.
reaches_devices(path) if {
	clean := cleaned(path)
	some guarded in guards
	overlap(clean, guarded)
}

# The device files of GPUs: /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-caps.
reaches_devices(path) if strings.any_prefix_match(cleaned(path), gpus)

# asks_for_devices: a mount at this path requests devices from the NVIDIA container
# toolkit.
asks_for_devices(path) if ".." in split(path, "/")

asks_for_devices(path) if {
	contains(path, "nvidia-container-devices") # a fast check, which most paths fail
	some guarded in ["/var/run/nvidia-container-devices", "/run/nvidia-container-devices"]
	within(cleaned(path), guarded)
}

# of_devices: the path in a container is a device path of GPUs, or requests devices.
of_devices(path) if asks_for_devices(path)

of_devices(path) if strings.any_prefix_match(cleaned(path), gpus)

gpus := {"/dev/nvidia", "/dev/dri", "/dev/kfd", "/dev/vfio"}

guards := {
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

overlap(path, guarded) if within(path, guarded)

overlap(path, guarded) if within(guarded, path)

within(_, "/")

within(path, directory) if path == directory

within(path, directory) if startswith(path, sprintf("%s/", [directory]))

# cleaned is a path without empty and . elements. The API server denies .. elements.
cleaned(path) := sprintf("/%s", [concat("/", [part | some part in split(path, "/"); not part in {"", "."}])])
