package sluice.lib.denials_test

import data.fixtures
import data.sluice.lib.denials

messages := {denial.msg | some denial in denials.pool_denials}

test_denies_what_pool_cannot_grant if {
	messages == {"the pod requests 0.3 of a GPU; node pool whole offers whole GPUs only"} with input as fixtures.input_for(fixtures.share(0.3), [fixtures.whole])
	count(messages) == 1 with input as fixtures.input_for(fixtures.slices(1, "2g.10gb"), [fixtures.mig])
	count(messages) == 1 with input as fixtures.input_for(fixtures.gpus(1), [fixtures.time_sliced])
	count(messages) == 0 with input as fixtures.input_for(fixtures.gpus(1), [fixtures.whole])
	count(messages) == 0 with input as fixtures.input_for(fixtures.cpu, [])
}

test_pool_of_other_project if {
	workload := object.union(fixtures.gpus(1), {"nodePools": ["other"]})
	messages == {"node pool other is not assigned to project thesis, which can use whole and mig"} with input as fixtures.input_for(workload, [fixtures.whole, fixtures.mig])
}

test_project_without_pools if {
	messages == {"project thesis has no node pool, and so no GPUs"} with input as fixtures.input_for(fixtures.gpus(1), [])
}

test_unsupported_pool if {
	unsupported := object.union(fixtures.whole, {"unsupported": "it has no nodes"})
	messages == {"node pool whole accepts no pods: it has no nodes"} with input as fixtures.input_for(fixtures.gpus(1), [unsupported])
}

test_fix_names_granting_pool if {
	pod_input := fixtures.input_for(fixtures.share(0.5), [fixtures.whole, fixtures.mig, fixtures.time_sliced])
	denials.grant_msg == "the pod requests 0.5 of a GPU; node pool whole offers whole GPUs only" with input as pod_input
	denials.grant_fix == "use node pool mig: name it in the annotation sluice.dev/node-pools" with input as pod_input
}

test_fix_without_granting_pool if {
	pod_input := fixtures.input_for(fixtures.share(0.5), [fixtures.time_sliced])
	denials.grant_msg == "the pod requests 0.5 of a GPU; node pool time-sliced offers one replica per pod, which is 0.25 of a GPU" with input as pod_input
	startswith(denials.grant_fix, "request at most one replica") with input as pod_input
}

test_offer_of_memory if {
	messages == {"the pod requests 3800 MiB of a GPU; node pool time-sliced offers one replica per pod, which is 3724 MiB"} with input as fixtures.input_for(fixtures.memory(3800), [fixtures.time_sliced])
}

test_offer_lists_slices if {
	denials.offer == "the MIG slices 1g.5gb, 1g.5gb+me, 3g.20gb and 7g.40gb" with input as fixtures.input_for(fixtures.slices(1, "2g.10gb"), [fixtures.mig])
}

test_memory_beyond_gpu_of_kai if {
	pod_input := fixtures.input_for(fixtures.memory(40960), [fixtures.pool("shared", "KAI", [{"memoryMiB": 40960, "profiles": []}])])
	messages == {"the pod requests 40960 MiB of a GPU; node pool shared offers whole GPUs, and shares of one with at most 40900 MiB"} with input as pod_input
	denials.grant_fix == "request at most 40900 MiB, or a whole GPU as nvidia.com/gpu in a container's limits" with input as pod_input
}

test_every_sharing_has_message_and_fix if {
	every sharing in ["None", "MIG", "MPS", "TimeSlicing", "KAI", "HAMi"] {
		denials.grant_msg with input as fixtures.input_for(fixtures.share(0.5), [fixtures.pool("bare", sharing, [])])
		denials.grant_fix with input as fixtures.input_for(fixtures.share(0.5), [fixtures.pool("bare", sharing, [])])
	}
}
