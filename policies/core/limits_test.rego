package core.limits_test

import data.core.limits as policy
import data.fixtures

pod_input(type, runtime, seconds) := fixtures.input_for(
	object.union(fixtures.gpus(1), {"type": type, "maxRuntime": runtime, "maxRuntimeSeconds": seconds}),
	[fixtures.whole],
)

limit := policy.overrides.metadata.annotations["sluice.dev/time-limit"]

test_project_limit if limit == "48h" with input as pod_input("train", "", 0)

test_shorter_limit if {
	limit == "6h" with input as pod_input("train", "6h", 21600)
	limit == "8h" with input as pod_input("interactive", "9h", 32400)
	count(policy.warn) == 1 with input as pod_input("interactive", "9h", 32400)
	limit == "900h" with input as pod_input("inference", "900h", 3240000)
}

test_no_limit if {
	inference := pod_input("inference", "", 0)
	not limit with input as inference
	policy.remove == {["metadata", "annotations", "sluice.dev/time-limit"]} with input as inference
}

test_active if {
	train := pod_input("train", "", 0)
	policy.overrides.metadata.annotations["sluice.dev/active"] == "5%/5m" with input as train
	policy.overrides.metadata.annotations["sluice.dev/active"] == "20%/1m" with input as train
		with input.project.activity as "20%/1m"
	not ["metadata", "annotations", "sluice.dev/active"] in policy.remove with input as train
	cpu := fixtures.input_for(fixtures.cpu, [fixtures.whole])
	["metadata", "annotations", "sluice.dev/active"] in policy.remove with input as cpu
	not policy.overrides.metadata.annotations["sluice.dev/active"] with input as cpu
}

test_minimum_grace_period if {
	train := pod_input("train", "", 0)
	grace := 5
	policy.overrides.spec.terminationGracePeriodSeconds == 30 with input as train
		with input.object.spec.terminationGracePeriodSeconds as grace
	policy.overrides.spec.terminationGracePeriodSeconds == 60 with input as train
		with input.object.spec.terminationGracePeriodSeconds as grace
		with input.parameters.minimumGraceSeconds as 60
	every none in [0, -1] {
		policy.overrides.spec.terminationGracePeriodSeconds == 30 with input as train
			with input.object.spec.terminationGracePeriodSeconds as none
	}
	not policy.overrides.spec.terminationGracePeriodSeconds with input as train with input.object.spec.terminationGracePeriodSeconds as 90
}

test_maximum_grace_period if {
	train := pod_input("train", "", 0)
	policy.overrides.spec.terminationGracePeriodSeconds == 3600 with input as train
		with input.object.spec.terminationGracePeriodSeconds as 86400000
	policy.overrides.spec.terminationGracePeriodSeconds == 600 with input as train
		with input.object.spec.terminationGracePeriodSeconds as 3600
		with input.parameters.maximumGraceSeconds as 600
	policy.overrides.spec.terminationGracePeriodSeconds == 30 with input as train
		with input.object.spec.terminationGracePeriodSeconds as 31
		with input.parameters.maximumGraceSeconds as 1
	not policy.overrides.spec.terminationGracePeriodSeconds with input as train with input.object.spec.terminationGracePeriodSeconds as 3600
	cpu := fixtures.input_for(fixtures.cpu, [fixtures.whole])
	policy.overrides.spec.terminationGracePeriodSeconds == 3600 with input as cpu
		with input.object.spec.terminationGracePeriodSeconds as 31536000
	not policy.overrides.spec.terminationGracePeriodSeconds with input as cpu with input.object.spec.terminationGracePeriodSeconds as 1
}

test_maximum_grace_period_on_gpu_nodes if {
	open := {"openPools": [{"nodeSelector": {"pool": "dgx"}, "taints": []}]}
	cpu := object.union(fixtures.input_for(fixtures.cpu, []), {"project": open, "object": {"spec": {"terminationGracePeriodSeconds": 61}}})
	policy.overrides.spec.terminationGracePeriodSeconds == 60 with input as cpu
	policy.overrides.spec.terminationGracePeriodSeconds == 20 with input as cpu with input.parameters.maximumGraceSecondsOnGPUNodes as 20
	policy.overrides.spec.terminationGracePeriodSeconds == 20 with input as cpu with input.parameters.maximumGraceSeconds as 20
	not policy.overrides.spec.terminationGracePeriodSeconds with input as cpu with input.object.spec.terminationGracePeriodSeconds as 60
	not policy.overrides.spec.terminationGracePeriodSeconds with input as cpu with input.object.spec.nodeSelector as {"pool": "cpu"}
	gpu := object.union(pod_input("train", "", 0), {"project": open, "object": {"spec": {"terminationGracePeriodSeconds": 61}}})
	not policy.overrides.spec.terminationGracePeriodSeconds with input as gpu
}

gated(names, pool) := object.union(
	fixtures.input_for(object.union(fixtures.gpus(1), {"type": "train", "maxRuntime": "", "maxRuntimeSeconds": 0}), [pool]),
	{"object": {"spec": {"schedulingGates": [{"name": name} | some name in names]}}},
)

test_scheduling_gates if {
	queue := object.union(fixtures.whole, {"scheduler": "kueue"})
	{d.field | some d in policy.deny} == {"spec.schedulingGates"} with input as gated(["example.org/mine"], fixtures.whole)
	count(policy.deny) == 1 with input as gated(["kueue.x-k8s.io/admission"], fixtures.whole)
	kueues := gated(["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"], queue)
	count(policy.deny) == 0 with input as kueues

	# Kueue removes no gates of a Job's pods.
	count(policy.deny) == 1 with input as kueues with input.workload.owner as {"group": "batch", "kind": "Job"}
	count(policy.deny) == 0 with input as gated(["example.org/mine"], queue) with input.parameters.schedulingGates as ["example.org/mine"]
	cpu := object.union(fixtures.input_for(fixtures.cpu, [fixtures.whole]), {"object": {"spec": {"schedulingGates": [{"name": "mine"}]}}})
	count(policy.deny) == 0 with input as cpu
}
