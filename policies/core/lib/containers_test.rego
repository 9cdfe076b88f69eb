package sluice.lib.containers_test

import data.fixtures
import data.sluice.lib.containers

both := {"spec": {
	"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "0"}}}, {"name": "side", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
	"initContainers": [{"name": "prepare"}],
}}

test_each if {
	[container.list | some container in containers.each] == ["containers", "containers", "initContainers"] with input.object as both
	containers.each == [] with input.object as {"spec": {}}
}

test_holders_ask_for_more_than_nothing if {
	containers.holders == ["side"] with input.object as both with input.workload as fixtures.gpus(1)
}

test_has_gpu if {
	containers.has_gpu({"name": "main"}) with input.workload as fixtures.share(0.5)
	not containers.has_gpu({"name": "side"}) with input.workload as fixtures.share(0.5)
}

test_of_gpus if {
	containers.of_gpus("nvidia.com/gpumem") with input.workload as fixtures.cpu
	not containers.of_gpus("cpu") with input.workload as fixtures.cpu
	not containers.of_gpus("sluice.dev/gpu-milli") with input.workload as fixtures.cpu
}
