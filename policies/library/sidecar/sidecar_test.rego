package sidecar_test

import data.sidecar

gpu := {"form": "Whole"}

parameters := {"name": "s", "image": "i", "cpu": "1", "memory": "1Gi"}

test_sidecar if {
	result := sidecar.overrides.spec.initContainers with input.workload as gpu with input.parameters as parameters
	result == [{
		"name": "s", "image": "i", "restartPolicy": "Always",
		"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
	}]
}

test_without_gpu if not sidecar.overrides with input.workload as object.union(gpu, {"form": "None"}) with input.parameters as parameters
