package core.nodepool_test

import data.core.nodepool as policy
import data.fixtures

pools := [fixtures.whole, fixtures.cut]

messages := {complaint.msg | some complaint in policy.deny}

test_where_a_gpu_pod_goes if {
	asked := fixtures.asked(fixtures.gpus(1), pools)
	policy.overrides.metadata.labels == {"sluice.dev/node-pool": "whole"} with input as asked
	policy.nodes == {{"key": "pool", "operator": "In", "values": ["whole"]}} with input as asked
	policy.append == {{"path": ["spec", "tolerations"], "value": {"key": "gpu", "operator": "Exists"}}} with input as asked
	count(policy.deny) == 0 with input as asked
}

test_other_pods_go_anywhere if {
	asked := fixtures.asked(fixtures.cpu, pools)
	policy.remove == {["metadata", "labels", "sluice.dev/node-pool"]} with input as asked
	count(policy.nodes) == 0 with input as asked
	count(policy.append) == 0 with input as asked
	count(policy.deny) == 0 with input as asked
}

test_of_several_pools_only_the_common_labels if {
	queued := object.union(fixtures.whole, {"scheduler": "kueue"})
	left := object.union(queued, {"nodeSelector": {"zone": "a", "disk": "fast"}})
	right := object.union(queued, {"nodeSelector": {"zone": "b"}})
	policy.nodes == {{"key": "pool", "operator": "In", "values": ["whole"]}, {"key": "zone", "operator": "In", "values": ["a", "b"]}} with input as fixtures.asked(fixtures.gpus(1), [left, right])
}

test_pools_that_are_not_the_projects if {
	wish := object.union(fixtures.gpus(1), {"nodePools": ["other"]})
	messages == {"node pool other is not one of project thesis; it may use whole and cut"} with input as fixtures.asked(wish, pools)
}

test_no_pools if {
	messages == {"project thesis has no node pool, and so no GPUs"} with input as fixtures.asked(fixtures.gpus(1), [])
}

test_pools_that_take_no_pods if {
	broken := object.union(fixtures.whole, {"unsupported": "it has no nodes"})
	messages == {"node pool whole takes no pods: it has no nodes"} with input as fixtures.asked(fixtures.gpus(1), [broken])
}

test_warns_of_what_is_left_out if {
	wish := object.union(fixtures.gpus(1), {"nodePools": ["cut", "whole"]})
	some complaint in policy.warn with input as fixtures.asked(wish, pools)
	contains(complaint.msg, "left out: whole")
	count(policy.warn) == 0 with input as fixtures.asked(fixtures.gpus(1), pools)
}
