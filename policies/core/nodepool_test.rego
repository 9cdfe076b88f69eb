package core.nodepool_test

import data.core.nodepool as policy
import data.fixtures

pools := [fixtures.whole, fixtures.mig]

test_gpu_pod_gets_pool if {
	pod_input := fixtures.input_for(fixtures.gpus(1), pools)
	policy.overrides.metadata.labels == {"sluice.dev/node-pool": "whole"} with input as pod_input
	policy.append == {{"path": ["spec", "tolerations"], "value": {"key": "gpu", "operator": "Exists"}}} with input as pod_input
}

test_other_pods_get_no_pool if {
	pod_input := fixtures.input_for(fixtures.cpu, pools)
	policy.remove == {["metadata", "labels", "sluice.dev/node-pool"]} with input as pod_input
	count(policy.append) == 0 with input as pod_input
}

remaining_tolerations(toleration) := remaining if {
	other := {"key": "other", "operator": "Exists"}
	remaining := policy.overrides.spec.tolerations with input as fixtures.input_for(fixtures.gpus(1), pools)
		with input.object.spec.tolerations as [toleration, other]
}

test_removes_tolerations_of_sluice_taints if {
	every toleration in [
		{"operator": "Exists"},
		{"operator": "Exists", "effect": "NoSchedule"},
		{"key": "sluice.dev/repartitioning", "operator": "Exists"},
	] {
		remaining_tolerations(toleration) == [{"key": "other", "operator": "Exists"}]
	}
	not remaining_tolerations({"operator": "Exists", "effect": "NoExecute"})
	not remaining_tolerations({"key": "nvidia.com/gpu", "operator": "Exists"})
}

test_pool_can_tolerate_every_taint if {
	tolerant := object.union(fixtures.whole, {"tolerations": [{"operator": "Exists"}]})
	not policy.overrides.spec.tolerations with input as fixtures.input_for(fixtures.gpus(1), [tolerant])
		with input.object.spec.tolerations as [{"operator": "Exists"}]
}

test_warns_of_unused_pools if {
	workload := object.union(fixtures.gpus(1), {"nodePools": ["mig", "whole"]})
	some warning in policy.warn with input as fixtures.input_for(workload, pools)
	contains(warning.msg, "one is not used: whole (kube-scheduler uses one pool for each pod)")
	count(policy.warn) == 0 with input as fixtures.input_for(fixtures.gpus(1), pools)
}

refused_nodes := [{"key": "pool", "value": "dgx"}, {"key": "pool", "value": "dgx-2"}, {"key": "gpu", "value": "yes"}]

test_pods_without_gpus_avoid_nodes if {
	pod := object.union(fixtures.input_for(fixtures.cpu, []), {"project": {"refusedNodes": refused_nodes}})
	policy.nodes == {
		{"key": "pool", "operator": "NotIn", "values": ["dgx", "dgx-2"]},
		{"key": "gpu", "operator": "NotIn", "values": ["yes"]},
	} with input as pod
	count(policy.deny) == 0 with input as pod
	count(policy.nodes) == 0 with input as fixtures.input_for(fixtures.cpu, [])
}

test_pods_without_gpus_cannot_select_nodes if {
	pod := object.union(fixtures.input_for(fixtures.cpu, []), {"project": {"refusedNodes": refused_nodes}})
	{denial.msg | some denial in policy.deny} == {"the nodes with the label pool=dgx-2 refuse pods without GPUs"} with input as pod
		with input.object.spec.nodeSelector as {"pool": "dgx-2", "gpu": "no"}
}

test_other_pods_do_not_avoid_nodes if {
	refusing := {"project": {"refusedNodes": refused_nodes}}
	of_daemon_set := object.union(fixtures.cpu, {"owner": {"group": "apps", "kind": "DaemonSet"}})
	every pod in [fixtures.input_for(fixtures.gpus(1), [fixtures.whole]), fixtures.input_for(of_daemon_set, [])] {
		count(policy.nodes) == 0 with input as object.union(pod, refusing)
		count(policy.deny) == 0 with input as object.union(pod, refusing) with input.object.spec.nodeSelector as {"gpu": "yes"}
	}
}

test_selectors_outside_of_the_pool_are_denied if {
	pod_input := fixtures.input_for(fixtures.gpus(1), [fixtures.whole, fixtures.mig])
	policy.deny == {{
		"msg": "no node of node pool whole has the label pool=mig",
		"field": "spec.nodeSelector[pool]",
		"fix": "name node pool mig in the annotation sluice.dev/node-pools; leave the selector out, since Sluice selects the nodes of the pool",
	}} with input as pod_input with input.object.spec.nodeSelector as {"pool": "mig", "kubernetes.io/hostname": "dgx-1"}
	{denial.fix | some denial in policy.deny} == {"the project can use node pool whole and mig; leave the selector out, since Sluice selects the nodes of the pool"} with input as pod_input
		with input.object.spec.nodeSelector as {"pool": "a100"}
	count(policy.deny) == 0 with input as pod_input with input.object.spec.nodeSelector as {"pool": "whole", "disk": "ssd"}
}

test_warns_of_missing_products if {
	pod_input := fixtures.input_for(fixtures.share(0.5), [fixtures.mig])
	{warning.msg | some warning in policy.warn} == {"no GPU of node pool mig is a H100; it has A100: the pod can wait forever"} with input as pod_input
		with input.object.spec.nodeSelector as {"nvidia.com/gpu.product": "H100"}
	count(policy.warn) == 0 with input as pod_input with input.object.spec.nodeSelector as {"nvidia.com/gpu.product": "A100-MIG-1g.5gb"}
	count(policy.warn) == 0 with input as fixtures.input_for(fixtures.gpus(1), [fixtures.whole])
		with input.object.spec.nodeSelector as {"nvidia.com/gpu.product": "H100"}
}
