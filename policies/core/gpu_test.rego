package core.gpu_test

import data.core.gpu as policy
import data.fixtures

limits := policy.overrides.spec.containers[0].resources.limits

messages := {denial.msg | some denial in policy.deny}

test_whole_gpus_are_unchanged if {
	not limits with input as fixtures.input_for(fixtures.gpus(2), [fixtures.whole])
}

test_share_becomes_slice if {
	pod_input := fixtures.input_for(fixtures.share(0.3), [fixtures.mig])
	limits == {"nvidia.com/mig-3g.20gb": "1"} with input as pod_input
	policy.warn == {"0.3 of a GPU became a slice 3g.20gb in node pool mig; the pod counts as 0.5 of a GPU"} with input as pod_input
}

test_share_of_kai_is_rounded_up if {
	pod_input := fixtures.input_for(object.union(fixtures.share(0.125), {"devices": 2}), [fixtures.pool("shared", "KAI", [])])
	not limits with input as pod_input
	policy.warn == {"2 times 0.125 of a GPU became 2 times 0.13 of a GPU in node pool shared; the pod counts as 0.26 of a GPU"} with input as pod_input
}

test_several_gpus_on_mig_pool if {
	policy.warn == {{
		"msg": "the 2 GPUs became 2 slices 7g.40gb in node pool mig: a program cannot use several MIG slices as one GPU, and they do not communicate directly",
		"fix": "request one, or use a node pool with whole GPUs",
	}} with input as fixtures.input_for(fixtures.gpus(2), [fixtures.mig])
	count(policy.warn) == 0 with input as fixtures.input_for(fixtures.gpus(2), [fixtures.whole])
}

test_no_warning_for_exact_grant if {
	count(policy.warn) == 0 with input as fixtures.input_for(fixtures.share(0.5), [fixtures.mig])
	count(policy.warn) == 0 with input as fixtures.input_for(fixtures.gpus(1), [fixtures.whole])
}

# The removal of nvidia.com/gpu never stands alone.
test_replaced_resource_is_named if {
	policy.warn == {"1 GPU became a slice 7g.40gb in node pool mig; the pod counts as 1 GPU"} with input as fixtures.input_for(fixtures.gpus(1), [fixtures.mig])
}

test_several_devices if {
	pod_input := fixtures.input_for(object.union(fixtures.share(0.1), {"devices": 2}), [fixtures.mig])
	limits == {"nvidia.com/mig-1g.5gb": "2"} with input as pod_input
	policy.warn == {"2 times 0.1 of a GPU became 2 slices 1g.5gb in node pool mig; the pod counts as 0.25 of a GPU"} with input as pod_input
}

test_removes_other_gpu_resources if {
	workload := object.union(fixtures.memory(20000), {"resources": {"nvidia.com/gpu": 1}})
	{path[5] | some path in policy.remove} == {"nvidia.com/gpu", "nvidia.com/gpumem"} with input as fixtures.input_for(workload, [fixtures.mig])
		with input.object as fixtures.pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 20000, "cpu": 1})
}

test_several_containers_are_denied if {
	two := {"spec": {"containers": [
		{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}},
		{"name": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}},
	]}}
	some denial in policy.deny with input as fixtures.input_for(fixtures.gpus(2), [fixtures.mig]) with input.object as two
	denial.fix == "request nvidia.com/mig-7g.40gb in each of them"
}

test_daemon_sets_are_denied if {
	daemon := object.union(fixtures.gpus(1), {"owner": {"group": "apps", "kind": "DaemonSet"}})
	count(messages) == 1 with input as fixtures.input_for(daemon, [fixtures.whole])
}

limited := object.union(fixtures.memory(8192), {"memoryLimitMiB": 16384})

shared := fixtures.pool("shared", "KAI", [{"memoryMiB": 81920, "profiles": []}])

test_burst_is_denied if {
	pod_input := fixtures.input_for(limited, [shared])
	messages == {"the pod's memory limit is 16384 MiB of a GPU, more than the share that it gets in node pool shared, which allows no more: its spec.burst is Refuse"} with input as pod_input
	{denial.fix | some denial in policy.deny} == {"remove the limit, or request as much as the limit"} with input as pod_input
}

test_burst_fix_names_pools if {
	bursting := object.union(shared, {"name": "bursting", "burst": "Allow"})
	{denial.fix | some denial in policy.deny} == {"remove the limit, or name one of the node pools that allow it in the annotation sluice.dev/node-pools: bursting"} with input as fixtures.input_for(limited, [shared, bursting])
	policy.deny == set() with input as fixtures.input_for(limited, [bursting, shared])
}

# The denial of a request that the pool cannot grant is enough.
test_burst_of_other_request if {
	policy.deny == set() with input as fixtures.input_for(limited, [fixtures.whole])
	policy.deny == set() with input as fixtures.input_for(limited, [])
}
