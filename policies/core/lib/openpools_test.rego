package sluice.lib.openpools_test

import data.sluice.lib.openpools

pool(taints) := {"nodeSelector": {"pool": "dgx"}, "taints": taints}

gpu_taint := {"key": "nvidia.com/gpu", "effect": "NoSchedule"}

can_run(spec, pools) if openpools.can_run_in_one with input as {"object": {"spec": spec}, "project": {"openPools": pools}}

term(requirements) := {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": requirements}}}}

requirement(operator, values) := {"matchExpressions": [{"key": "pool", "operator": operator, "values": values}]}

test_nodes_without_taints if {
	can_run({}, [pool([])])
	not can_run({}, [])
	can_run({"nodeSelector": {"pool": "dgx"}}, [pool([])])

	# The label says nothing of the pool's nodes.
	can_run({"nodeSelector": {"disk": "fast"}}, [pool([])])
	not can_run({"nodeSelector": {"pool": "cpu"}}, [pool([])])
}

test_taints if {
	not can_run({}, [pool([gpu_taint])])
	can_run({}, [pool([gpu_taint]), pool([])])
	every toleration in [
		{"operator": "Exists"}, {"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "nvidia.com/gpu"},
		{"key": "nvidia.com/gpu", "operator": "Equal", "value": "", "effect": "NoSchedule"},
	] {
		can_run({"tolerations": [toleration]}, [pool([gpu_taint])])
	}
	every toleration in [
		{"key": "other", "operator": "Exists"}, {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"},
		{"key": "nvidia.com/gpu", "value": "true"},
	] {
		not can_run({"tolerations": [toleration]}, [pool([gpu_taint])])
	}
	valued := object.union(gpu_taint, {"value": "true"})
	can_run({"tolerations": [{"key": "nvidia.com/gpu", "value": "true"}]}, [pool([valued])])
	not can_run({"tolerations": [{"key": "nvidia.com/gpu"}]}, [pool([valued])])
	not can_run({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}, [pool([gpu_taint, {"key": "other", "effect": "NoExecute"}])])
}

test_affinity if {
	every apart in [requirement("NotIn", ["dgx"]), requirement("In", ["cpu"]), {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}] {
		not can_run(term([apart]), [pool([])])

		# The pod needs one term only.
		can_run(term([apart, requirement("In", ["dgx"])]), [pool([])])
	}
	can_run(term([requirement("NotIn", ["cpu"])]), [pool([])])
	can_run(term([requirement("Exists", [])]), [pool([])])
	can_run(term([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cpu-1"]}]}]), [pool([])])
	can_run(term([]), [pool([])])
}
