package sluice.lib.paths_test

import data.sluice.lib.paths

test_reaches_devices if {
	every path in ["/", "/dev", "//dev/./", "/dev/nvidia0", "/dev/nvidia-caps/x", "/var", "/run/containerd/containerd.sock", "/proc", "/proc/1/root", "/etc/kubernetes/manifests", "/var/lib/kubelet/pods", "/dev/vfio"] {
		paths.reaches_devices(path)
	}
}

test_leaves_others if {
	every path in ["/dev/shm", "/dev/infiniband", "/data", "/devices", "/var/log", "/runs"] {
		not paths.reaches_devices(path)
	}
}

test_asks_for_devices if {
	paths.asks_for_devices("/var/run/nvidia-container-devices/all")
	paths.asks_for_devices("/var/run/x/../nvidia-container-devices/all")
	not paths.asks_for_devices("/var/run/nvidia")
}

test_of_devices if {
	paths.of_devices("/dev/nvidia0")
	paths.of_devices("/run/nvidia-container-devices/all")
	not paths.of_devices("/dev/xvda")
}
