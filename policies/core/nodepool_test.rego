package core.nodepool_test

import data.core.nodepool as policy
import data.fixtures

pools := [fixtures.whole, fixtures.cut]

test_where_a_gpu_pod_goes if {
	asked := fixtures.asked(fixtures.gpus(1), pools)
	policy.overrides.metadata.labels == {"sluice.dev/node-pool": "whole"} with input as asked
	policy.append == {{"path": ["spec", "tolerations"], "value": {"key": "gpu", "operator": "Exists"}}} with input as asked
}

test_other_pods_go_anywhere if {
	asked := fixtures.asked(fixtures.cpu, pools)
	policy.remove == {["metadata", "labels", "sluice.dev/node-pool"]} with input as asked
	count(policy.append) == 0 with input as asked
}

tolerating(toleration) := left if {
	other := {"key": "other", "operator": "Exists"}
	left := policy.overrides.spec.tolerations with input as fixtures.asked(fixtures.gpus(1), pools)
		with input.object.spec.tolerations as [toleration, other]
}

test_nobody_tolerates_our_taints if {
	every toleration in [
		{"operator": "Exists"},
		{"operator": "Exists", "effect": "NoSchedule"},
		{"key": "sluice.dev/repartitioning", "operator": "Exists"},
	] {
		tolerating(toleration) == [{"key": "other", "operator": "Exists"}]
	}
	not tolerating({"operator": "Exists", "effect": "NoExecute"})
	not tolerating({"key": "nvidia.com/gpu", "operator": "Exists"})
}

test_a_pool_may_have_every_taint_tolerated if {
	broad := object.union(fixtures.whole, {"tolerations": [{"operator": "Exists"}]})
	not policy.overrides.spec.tolerations with input as fixtures.asked(fixtures.gpus(1), [broad])
		with input.object.spec.tolerations as [{"operator": "Exists"}]
}

test_warns_of_what_is_left_out if {
	wish := object.union(fixtures.gpus(1), {"nodePools": ["cut", "whole"]})
	some complaint in policy.warn with input as fixtures.asked(wish, pools)
	contains(complaint.msg, "one is not used: whole")
	count(policy.warn) == 0 with input as fixtures.asked(fixtures.gpus(1), pools)
}
