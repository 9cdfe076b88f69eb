package sluice.lib.containers_test

import data.fixtures
import data.sluice.lib.containers

pod := {"spec": {
	"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "0"}}}, {"name": "side", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
	"initContainers": [{"name": "prepare"}],
}}

test_entries if {
	[container.list | some container in containers.entries] == ["containers", "containers", "initContainers"] with input.object as pod
	containers.entries == [] with input.object as {"spec": {}}
}

test_names_with_gpu_resources_ignore_zero if {
	containers.names_with_gpu_resources == ["side"] with input.object as pod with input.workload as fixtures.gpus(1)
}

test_has_gpu if {
	containers.has_gpu({"name": "main"}) with input.workload as fixtures.share(0.5)
	not containers.has_gpu({"name": "side"}) with input.workload as fixtures.share(0.5)
}

test_is_gpu_resource if {
	containers.is_gpu_resource("nvidia.com/gpumem") with input.workload as fixtures.cpu
	not containers.is_gpu_resource("cpu") with input.workload as fixtures.cpu
	not containers.is_gpu_resource("sluice.dev/gpu-milli") with input.workload as fixtures.cpu
}
