package core.devices_test

import data.core.devices as policy
import data.fixtures

asked(workload, spec) := object.union(fixtures.asked(workload, []), {"object": {"metadata": {}, "spec": spec}})

void := [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]

test_containers_without_gpus_see_none if {
	spec := {"containers": [{"name": "main"}, {"name": "side"}], "initContainers": [{"name": "prepare"}]}
	policy.overrides.spec == {
		"containers": [{"name": "side", "env": void}],
		"initContainers": [{"name": "prepare", "env": void}],
	} with input as asked(fixtures.share(0.5), spec)
}

test_variables if {
	env := [{"name": name} | some name in ["A", "NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_DISABLE_CONTROL"]]
	spec := {"containers": [{"name": "main", "env": env}]}
	{path[4].name | some path in policy.remove} == {"NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_DISABLE_CONTROL"} with input as asked(fixtures.gpus(1), spec)
	{path[4].name | some path in policy.remove} == {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_DISABLE_CONTROL"} with input as asked(fixtures.cpu, spec)
}

messages(spec) := said if {
	said := {complaint.msg | some complaint in policy.deny} with input as asked(fixtures.gpus(1), spec)
}

volumes(path) := {"volumes": [{"name": "it", "hostPath": {"path": path}}]}

test_paths_of_the_node if {
	messages(volumes("/dev")) == {"volume it mounts /dev of the node, which gives access to GPUs that the pod did not request"}
	messages(volumes("/data")) == {"volume it mounts /data of the node; pods of projects cannot mount directories of nodes"}
	messages({"volumes": [{"name": "it", "emptyDir": {}}]}) == set()
}

test_paths_that_are_allowed if {
	asked_data := asked(fixtures.cpu, volumes("/data/imagenet"))
	asked_other := asked(fixtures.cpu, volumes("/database"))
	asked_up := asked(fixtures.cpu, volumes("/data/../etc"))
	asked_dev := asked(fixtures.cpu, volumes("/dev/nvidia0"))
	count(policy.deny) == 0 with input as asked_data with input.parameters.allowedHostPaths as ["/data/"]
	{complaint.msg | some complaint in policy.deny} == {"volume it mounts /database of the node; pods of projects can mount only those in /data and /raid"} with input as asked_other
		with input.parameters.allowedHostPaths as ["/data", "/raid"]
	count(policy.deny) == 1 with input as asked_up with input.parameters.allowedHostPaths as ["/data"]
	count(policy.deny) == 1 with input as asked_dev with input.parameters.allowedHostPaths as ["/"]
}

test_paths_in_containers if {
	count(messages({"containers": [{"name": "main", "volumeMounts": [{"name": "x", "mountPath": "/var/run/nvidia-container-devices/all"}]}]})) == 1
	count(messages({"containers": [{"name": "main", "volumeDevices": [{"name": "x", "devicePath": "/dev/nvidia0"}]}]})) == 1
	count(messages({"containers": [{"name": "main", "volumeDevices": [{"name": "x", "devicePath": "/dev/xvda"}]}]})) == 0
}

adding(capability) := {"containers": [{"name": "main", "securityContext": {"capabilities": {"add": [capability]}}}]}

test_capabilities if {
	every capability in ["ALL", "SYS_ADMIN", "CAP_SYS_RAWIO", "bpf"] {
		count(messages(adding(capability))) == 1
	}
	every capability in ["NET_ADMIN", "SYS_PTRACE", "IPC_LOCK", "MKNOD"] {
		count(messages(adding(capability))) == 0
	}
	messages(adding("SYS_ADMIN")) == {"container main adds the capability SYS_ADMIN, with which it can mount the node's devices and leave its own namespaces"}
	count(policy.deny) == 0 with input as asked(fixtures.cpu, adding("CAP_SYS_ADMIN"))
		with input.parameters.allowedCapabilities as ["SYS_ADMIN"]
}

test_processes_of_the_node if {
	count(messages({"hostPID": true})) == 1
	count(messages({"hostPID": false})) == 0
}

test_privileged if {
	count(policy.deny) == 1 with input as asked(fixtures.cpu, {"initContainers": [{"name": "x", "securityContext": {"privileged": true}}]})
	count(policy.deny) == 0 with input as asked(fixtures.cpu, {"containers": [{"name": "x", "securityContext": {"privileged": false}}]})
}

test_runtime_class if {
	spec := {"containers": [{"name": "main"}], "runtimeClassName": "nvidia"}
	count(policy.deny) == 1 with input as asked(fixtures.cpu, spec)
	count(policy.deny) == 0 with input as asked(fixtures.gpus(1), spec)
	count(policy.deny) == 0 with input as asked(fixtures.cpu, spec) with input.parameters.runtimeClasses as ["other"]
}

test_devices_by_annotation if {
	every key in ["cdi.k8s.io/x", "io.kubernetes.cri-o.Devices", "devices.nri.io", "devices.nri.io/container.main", "cdi-devices.nri.io/pod"] {
		count(policy.deny) == 1 with input as asked(fixtures.cpu, {}) with input.object.metadata.annotations as {key: "nvidia.com/gpu=all"}
	}
	count(policy.deny) == 0 with input as asked(fixtures.cpu, {}) with input.object.metadata.annotations as {"devices.example.org/x": "nvidia.com/gpu=all"}
}

from(prefix) := {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "x"}, "prefix": prefix}]}]}

test_variables_from_elsewhere if {
	every prefix in ["", "N", "NVIDIA_", "CUDA_MPS_PIPE", "CUDA_"] {
		count(messages(from(prefix))) == 1
	}
	every prefix in ["APP_", "NVIDIA_X", "NCCL_"] {
		count(messages(from(prefix))) == 0
	}
	count(messages({"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "x"}}]}]})) == 1
	count(policy.deny) == 0 with input as asked(fixtures.cpu, from(""))
	count(policy.deny) == 0 with input as asked(fixtures.gpus(1), from("")) with input.parameters.refuseEnvFrom as false
}
