# The paths of a node by which its GPUs can be reached.
package sluice.lib.paths

# reaches_devices: a directory or file of the node is one of these, in one of
# these, or has one of these in it.
reaches_devices(path) if {
	clean := cleaned(path)
	some guarded in guards
	overlap(clean, guarded)
}

# What begins so is a GPU: /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-caps.
reaches_devices(path) if strings.any_prefix_match(cleaned(path), gpus)

# asks_for_devices: by mounting this path a container asks the NVIDIA container
# toolkit for devices.
asks_for_devices(path) if ".." in split(path, "/")

asks_for_devices(path) if {
	contains(path, "nvidia-container-devices") # else the rest is in vain: most paths
	some guarded in ["/var/run/nvidia-container-devices", "/run/nvidia-container-devices"]
	within(cleaned(path), guarded)
}

# of_devices: the path is one of GPUs, in whichever root.
of_devices(path) if asks_for_devices(path)

of_devices(path) if strings.any_prefix_match(cleaned(path), gpus)

gpus := {"/dev/nvidia", "/dev/dri", "/dev/kfd", "/dev/vfio"}

guards := {
	"/dev/char",
	"/dev/nvidia0",
	"/etc/cdi",
	"/dev/kfd",
	"/dev/vfio",
	# A process's root is the node's, with its /dev.
	"/proc",
	"/sys/bus/pci",
	"/sys/class/drm",
	# Pods that are started from here come past every admission.
	"/etc/kubernetes",
	# The files of the driver, and the sockets of MPS.
	"/run/nvidia",
	"/var/run/nvidia",
	"/tmp/nvidia-mps",
	"/var/run/nvidia-container-devices",
	"/run/cdi",
	"/var/run/cdi",
	# Whoever speaks to these makes containers with any device.
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

# cleaned is a path without the parts that mean nothing; the API server refuses
# those that lead up.
cleaned(path) := sprintf("/%s", [concat("/", [part | some part in split(path, "/"); not part in {"", "."}])])
