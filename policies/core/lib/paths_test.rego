package sluice.lib.paths_test

import data.sluice.lib.paths

test_exposes_devices if {
	every path in ["/", "/dev", "//dev/./", "/dev/nvidia0", "/dev/nvidia-caps/x", "/var", "/run/containerd/containerd.sock", "/proc", "/proc/1/root", "/etc/kubernetes/manifests", "/var/lib/kubelet/pods", "/dev/vfio"] {
		paths.exposes_devices(path)
	}
}

test_other_paths_expose_no_devices if {
	every path in ["/dev/shm", "/dev/infiniband", "/data", "/devices", "/var/log", "/runs"] {
		not paths.exposes_devices(path)
	}
}

test_requests_devices if {
	paths.requests_devices("/var/run/nvidia-container-devices/all")
	paths.requests_devices("/var/run/x/../nvidia-container-devices/all")
	not paths.requests_devices("/var/run/nvidia")
}

test_is_device_path if {
	paths.is_device_path("/dev/nvidia0")
	paths.is_device_path("/run/nvidia-container-devices/all")
	not paths.is_device_path("/dev/xvda")
}
