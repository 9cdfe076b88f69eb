package core.devices_test

import data.core.devices as policy
import data.fixtures

pod_input(workload, spec) := object.union(fixtures.input_for(workload, []), {"object": {"metadata": {}, "spec": spec}})

void := [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]

test_containers_without_gpus_see_no_devices if {
	spec := {"containers": [{"name": "main"}, {"name": "side"}], "initContainers": [{"name": "prepare"}]}
	policy.overrides.spec == {
		"containers": [{"name": "side", "env": void}],
		"initContainers": [{"name": "prepare", "env": void}],
	} with input as pod_input(fixtures.share(0.5), spec)
}

test_removes_variables if {
	env := [{"name": name} | some name in ["A", "NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_DISABLE_CONTROL"]]
	spec := {"containers": [{"name": "main", "env": env}]}
	{path[4].name | some path in policy.remove} == {"NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_DISABLE_CONTROL"} with input as pod_input(fixtures.gpus(1), spec)
	{path[4].name | some path in policy.remove} == {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_DISABLE_CONTROL"} with input as pod_input(fixtures.cpu, spec)
}

mps := fixtures.pool("mps", "MPS", [{"memoryMiB": 24000, "replicas": 3, "replicaResource": "nvidia.com/gpu.shared", "profiles": []}])

limit := {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=7760M"}

test_limits_share if {
	share_input := object.union(fixtures.input_for(fixtures.share(0.3), [mps]), {"object": {"metadata": {}, "spec": {
		"containers": [{"name": "main", "env": [{"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=24G"}, {"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "24000"}]}],
		"initContainers": [{"name": "prepare"}],
	}}})
	policy.overrides.spec == {"containers": [{"name": "main", "env": [limit]}], "initContainers": [{"name": "prepare", "env": void}]} with input as share_input

	# The override replaces the author's value, so it is not removed.
	{path[4].name | some path in policy.remove} == {"NVIDIA_GPU_MEMORY_LIMIT"} with input as share_input
}

test_removes_limits_of_other_rungs if {
	names := ["NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_SM_LIMIT_0", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "ACTIVE_OOM_KILLER"]
	spec := {"containers": [{"name": "main", "env": [{"name": name, "value": "1"} | some name in names]}]}
	{path[4].name | some path in policy.remove} == {name | some name in names} with input as pod_input(fixtures.gpus(1), spec)
}

kai_variable(name, config_map) := {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": name}}}

removed_in_kai_pool(workload, env) := names if {
	kai := object.union(fixtures.pool("kai", "KAI", [{"memoryMiB": 80000, "profiles": []}]), {"scheduler": "kai"})
	share_input := object.union(fixtures.input_for(workload, [kai]), {"object": {
		"metadata": {"annotations": {"runai/shared-gpu-configmap": "p-abcdefg-shared-gpu"}},
		"spec": {"containers": [{"name": "main", "env": env}]},
	}})
	names := {path[4].name | some path in policy.remove} with input as share_input
}

test_limits_of_kai_stay if {
	env := [kai_variable(name, "p-abcdefg-shared-gpu-0") | some name in ["NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"]]
	removed_in_kai_pool(fixtures.share(0.5), env) == set()
	removed_in_kai_pool(fixtures.gpus(1), env) == {"NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"}
	removed_in_kai_pool(fixtures.share(0.5), [kai_variable("CUDA_DEVICE_MEMORY_LIMIT", "mine")]) == {"CUDA_DEVICE_MEMORY_LIMIT"}
	another := [kai_variable(name, "other-bcdefgh-shared-gpu-0") | some name in ["NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT"]]
	removed_in_kai_pool(fixtures.share(0.5), another) == {"NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_LIMIT"}
	removed_in_kai_pool(fixtures.share(0.5), [kai_variable("CUDA_DISABLE_CONTROL", "p-abcdefg-shared-gpu-0")]) == {"CUDA_DISABLE_CONTROL"}
	twice := [kai_variable("CUDA_DEVICE_MEMORY_LIMIT", "p-abcdefg-shared-gpu-0"), {"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "90g"}]
	removed_in_kai_pool(fixtures.share(0.5), twice) == {"CUDA_DEVICE_MEMORY_LIMIT"}
}

messages(spec) := texts if {
	texts := {denial.msg | some denial in policy.deny} with input as pod_input(fixtures.gpus(1), spec)
}

volumes(path) := {"volumes": [{"name": "data", "hostPath": {"path": path}}]}

test_host_paths if {
	messages(volumes("/dev")) == {"volume data mounts /dev of the node, which gives access to GPUs that the pod did not request"}
	messages(volumes("/data")) == {"volume data mounts /data of the node; pods of projects cannot mount directories of nodes"}
	messages({"volumes": [{"name": "data", "emptyDir": {}}]}) == set()
}

test_allowed_host_paths if {
	allowed := pod_input(fixtures.cpu, volumes("/data/imagenet"))
	sibling := pod_input(fixtures.cpu, volumes("/database"))
	parent := pod_input(fixtures.cpu, volumes("/data/../etc"))
	device := pod_input(fixtures.cpu, volumes("/dev/nvidia0"))
	count(policy.deny) == 0 with input as allowed with input.parameters.allowedHostPaths as ["/data/"]
	{denial.msg | some denial in policy.deny} == {"volume data mounts /database of the node; pods of projects can mount only those in /data and /raid"} with input as sibling
		with input.parameters.allowedHostPaths as ["/data", "/raid"]
	count(policy.deny) == 1 with input as parent with input.parameters.allowedHostPaths as ["/data"]
	count(policy.deny) == 1 with input as device with input.parameters.allowedHostPaths as ["/"]
}

test_paths_in_containers if {
	count(messages({"containers": [{"name": "main", "volumeMounts": [{"name": "x", "mountPath": "/var/run/nvidia-container-devices/all"}]}]})) == 1
	count(messages({"containers": [{"name": "main", "volumeDevices": [{"name": "x", "devicePath": "/dev/nvidia0"}]}]})) == 1
	count(messages({"containers": [{"name": "main", "volumeDevices": [{"name": "x", "devicePath": "/dev/xvda"}]}]})) == 0
}

with_capability(capability) := {"containers": [{"name": "main", "securityContext": {"capabilities": {"add": [capability]}}}]}

test_capabilities if {
	every capability in ["ALL", "SYS_ADMIN", "CAP_SYS_RAWIO", "bpf"] {
		count(messages(with_capability(capability))) == 1
	}
	every capability in ["NET_ADMIN", "SYS_PTRACE", "IPC_LOCK", "MKNOD"] {
		count(messages(with_capability(capability))) == 0
	}
	messages(with_capability("SYS_ADMIN")) == {"container main adds the capability SYS_ADMIN, with which it can mount the node's devices and leave its own namespaces"}
	count(policy.deny) == 0 with input as pod_input(fixtures.cpu, with_capability("CAP_SYS_ADMIN"))
		with input.parameters.allowedCapabilities as ["SYS_ADMIN"]
}

test_host_pid if {
	count(messages({"hostPID": true})) == 1
	count(messages({"hostPID": false})) == 0
}

test_privileged if {
	count(policy.deny) == 1 with input as pod_input(fixtures.cpu, {"initContainers": [{"name": "x", "securityContext": {"privileged": true}}]})
	count(policy.deny) == 0 with input as pod_input(fixtures.cpu, {"containers": [{"name": "x", "securityContext": {"privileged": false}}]})
}

test_runtime_class if {
	spec := {"containers": [{"name": "main"}], "runtimeClassName": "nvidia"}
	count(policy.deny) == 1 with input as pod_input(fixtures.cpu, spec)
	count(policy.deny) == 0 with input as pod_input(fixtures.gpus(1), spec)
	count(policy.deny) == 0 with input as pod_input(fixtures.cpu, spec) with input.parameters.runtimeClasses as ["other"]
}

test_device_annotations if {
	every key in ["cdi.k8s.io/x", "io.kubernetes.cri-o.Devices", "devices.nri.io", "devices.nri.io/container.main", "cdi-devices.nri.io/pod", "cdi.nri.io/container.main", "devices.gke.io/container.main", "mounts.nri.io", "mounts.noderesource.dev/container.main", "cdi-devices.noderesource.dev/pod", "devices.noderesource.dev/pod", "io-priority.nri.io/pod", "io-priority.noderesource.dev/pod", "netdevice.noderesource.dev/pod", "netdevices.nri.containerd.io", "netdevices.nri.io/pod", "devices.crio.io", "devices.crio.io/main"] {
		count(policy.deny) == 1 with input as pod_input(fixtures.cpu, {}) with input.object.metadata.annotations as {key: "nvidia.com/gpu=all"}
	}
	count(policy.deny) == 0 with input as pod_input(fixtures.cpu, {}) with input.object.metadata.annotations as {"devices.example.org/x": "nvidia.com/gpu=all"}
}

test_gpu_groups if {
	every key in ["runai-gpu-group", "runai-gpu-group/dgx-1-0"] {
		count(policy.deny) == 1 with input as pod_input(fixtures.cpu, {}) with input.object.metadata.labels as {key: "x"}
		count(policy.deny) == 1 with input as pod_input(fixtures.gpus(1), {}) with input.object.metadata.labels as {key: "x"}
	}
	count(policy.deny) == 0 with input as pod_input(fixtures.cpu, {}) with input.object.metadata.labels as {"app": "runai-gpu-group"}
}

env_from(prefix) := {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "x"}, "prefix": prefix}]}]}

test_env_from if {
	every prefix in ["", "N", "NVIDIA_", "NVIDIA_GPU_MEMORY_LI", "CUDA_MPS_PIPE", "CUDA_", "ACTIVE_OOM"] {
		count(messages(env_from(prefix))) == 1
	}
	every prefix in ["APP_", "NVIDIA_X", "NCCL_"] {
		count(messages(env_from(prefix))) == 0
	}
	count(messages({"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "x"}}]}]})) == 1
	count(policy.deny) == 0 with input as pod_input(fixtures.cpu, env_from(""))
	count(policy.deny) == 0 with input as pod_input(fixtures.gpus(1), env_from("")) with input.parameters.refuseEnvFrom as false
}
