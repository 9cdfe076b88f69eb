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

test_paths if {
	count(policy.deny) == 1 with input as asked(fixtures.gpus(1), {"volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}, {"name": "shm", "hostPath": {"path": "/dev/shm"}}]})
	count(policy.deny) == 1 with input as asked(fixtures.cpu, {"containers": [{"name": "main", "volumeMounts": [{"name": "x", "mountPath": "/var/run/nvidia-container-devices/all"}]}]})
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
	count(policy.deny) == 1 with input as asked(fixtures.cpu, {})
		with input.object.metadata.annotations as {"cdi.k8s.io/x": "nvidia.com/gpu=all"}
}

test_variables_from_elsewhere if {
	spec := {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "x"}}, {"prefix": "APP_"}]}]}
	count(policy.deny) == 0 with input as asked(fixtures.gpus(1), spec)
	count(policy.deny) == 1 with input as asked(fixtures.gpus(1), spec) with input.parameters.refuseEnvFrom as true
}
