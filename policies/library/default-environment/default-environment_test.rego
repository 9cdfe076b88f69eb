package default_environment_test

import data.default_environment

gpu := {"form": "Whole"}

test_defaults if {
	result := default_environment.defaults with input.workload as gpu
		with input.parameters as {"env": {"A": "1"}, "claims": [{"claim": "c", "mountPath": "/c", "readOnly": true}]}
	result.spec.containers["*"].env == [{"name": "A", "value": "1"}]
	result.spec.containers["*"].volumeMounts == [{"name": "default-c", "mountPath": "/c"}]
	result.spec.volumes == [{"name": "default-c", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}}]
}

test_without_parameters if {
	result := default_environment.defaults with input.workload as gpu with input.parameters as {}
	result.spec.volumes == []
}

test_without_gpu if not default_environment.defaults with input.workload as object.union(gpu, {"form": "None"}) with input.parameters as {}
