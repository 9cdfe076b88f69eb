package core.resources_test

import data.core.resources as policy
import data.fixtures

gib := 1073741824

kind(product, gpus, cpu, memory) := {"product": product, "gpus": gpus, "perGPU": {"cpu": cpu, "memory": memory * gib}}

# dgx is a pool of nodes with 8 GPUs, each with 32 CPUs and 128 GiB.
dgx := object.union(fixtures.whole, {"nodeKinds": [kind("A100", 8, 32000, 128)]})

mig := object.union(fixtures.mig, {"nodeKinds": [kind("A100", 8, 32000, 128)]})

denials(type, workload, pools, requests) := result if {
	result := {denial.msg | some denial in policy.deny} with input as fixtures.input_for(object.union(workload, {"type": type, "requests": requests}), pools)
}

test_share_of_whole_gpus if {
	count(denials("interactive", fixtures.gpus(1), [dgx], {"cpu": 32000, "memory": 128 * gib})) == 0
	denials("interactive", fixtures.gpus(1), [dgx], {"cpu": 32001, "memory": (128 * gib) + 1}) == {
		"the pod requests cpu 32001m; a pod with 1 GPU can request at most 32 in node pool whole",
		"the pod requests memory 137438953473; a pod with 1 GPU can request at most 128Gi in node pool whole",
	}
	count(denials("interactive", fixtures.gpus(8), [dgx], {"cpu": 256000})) == 0
	count(denials("interactive", fixtures.gpus(1), [dgx], {})) == 0
}

test_preemptible_pods_can_request_more if {
	count(denials("train", fixtures.gpus(1), [dgx], {"cpu": 48000})) == 0
	denials("train", fixtures.gpus(1), [dgx], {"cpu": 255000}) == {"the pod requests cpu 255; a pod with 1 GPU can request at most 48 in node pool whole"}
	count(policy.deny) == 0 with input as fixtures.input_for(object.union(fixtures.gpus(1), {"type": "interactive", "requests": {"cpu": 48000}}), [dgx])
		with input.object.spec.priorityClassName as "sluice-interactive-preemptible"
}

test_parts_of_gpus if {
	denials("interactive", fixtures.slices(1, "1g.5gb"), [mig], {"cpu": 4001, "memory": 17 * gib}) == {
		"the pod requests cpu 4001m; a pod with 0.125 of a GPU can request at most 4 in node pool mig",
		"the pod requests memory 17Gi; a pod with 0.125 of a GPU can request at most 16Gi in node pool mig",
	}
	count(denials("train", fixtures.share(0.3), [mig], {"cpu": 24000})) == 0
	count(denials("train", fixtures.share(0.3), [mig], {"cpu": 24001})) == 1
	replicated := object.union(fixtures.time_sliced, {"nodeKinds": [kind("T4", 1, 4000, 16)]})
	count(denials("interactive", fixtures.share(0.25), [replicated], {"cpu": 1000})) == 0
	count(denials("interactive", fixtures.share(0.25), [replicated], {"cpu": 1001})) == 1
}

# The node that counts is the one that offers least, of those that could hold the pod.
test_suitable_nodes if {
	mixed := object.union(fixtures.whole, {
		"products": [{"name": "T4", "memoryMiB": 15360, "profiles": []}, {"name": "A100", "memoryMiB": 40960, "profiles": []}],
		"nodeKinds": [kind("T4", 1, 4000, 16), kind("A100", 8, 32000, 128)],
	})
	count(denials("interactive", fixtures.gpus(1), [mixed], {"cpu": 4000})) == 0
	count(denials("interactive", fixtures.gpus(1), [mixed], {"cpu": 5000})) == 1
	count(denials("interactive", fixtures.gpus(2), [mixed], {"cpu": 64000})) == 0

	# No node has so many GPUs.
	count(denials("interactive", fixtures.gpus(9), [mixed], {"cpu": 37000})) == 1

	every product, denied in {"A100": 0, "A100-SHARED": 0, "T4": 1} {
		count(policy.deny) == denied with input as fixtures.input_for(object.union(fixtures.gpus(1), {"type": "interactive", "requests": {"cpu": 5000}}), [mixed])
			with input.object.spec.nodeSelector as {"nvidia.com/gpu.product": product}
	}
	sliced := object.union(fixtures.mig, {
		"products": array.concat(fixtures.mig.products, [{"name": "A30", "memoryMiB": 24576, "profiles": [fixtures.profile("1g.6gb", 1, 6144, 0.25)]}]),
		"nodeKinds": [kind("A30", 1, 2000, 16), kind("A100", 8, 32000, 128)],
	})
	count(denials("interactive", fixtures.slices(1, "1g.5gb"), [sliced], {"cpu": 4000})) == 0
	count(denials("interactive", fixtures.slices(1, "1g.6gb"), [sliced], {"cpu": 501})) == 1
	fractions := object.union(mixed, {"sharing": "KAI", "scheduler": "kai", "settings": {}})
	count(denials("interactive", fixtures.memory(20480), [fractions], {"cpu": 16000})) == 0
}

test_several_pools if {
	small := object.union(dgx, {"name": "small", "scheduler": "kueue", "guaranteed": 0, "nodeKinds": [kind("A100", 8, 8000, 128)]})
	large := object.union(dgx, {"scheduler": "kueue", "guaranteed": 0})
	denials("interactive", fixtures.gpus(1), [large, small], {"cpu": 9000}) == {"the pod requests cpu 9; a pod with 1 GPU can request at most 8 in node pool small"}
}

test_resources_that_not_all_nodes_offer if {
	huge := object.union(dgx, {"nodeKinds": array.concat(dgx.nodeKinds, [{"product": "A100", "gpus": 4, "perGPU": {"cpu": 32000, "hugepages-2Mi": gib}}])})
	count(denials("interactive", fixtures.gpus(1), [huge], {"hugepages-2Mi": gib})) == 0
	count(denials("interactive", fixtures.gpus(1), [huge], {"hugepages-2Mi": 2 * gib})) == 1
	denials("interactive", fixtures.gpus(1), [huge], {"hugepages-1Gi": gib}) == {"the pod requests hugepages-1Gi, which no node of node pool whole offers"}
}

test_pool_without_nodes if {
	count(denials("interactive", fixtures.gpus(100), [fixtures.whole], {"cpu": 1200000})) == 0
	count(denials("interactive", fixtures.gpus(1), [fixtures.whole], {"cpu": 12001})) == 1
}

test_factors if {
	half := object.union(dgx, {"resourceFactors": {"nonPreemptible": 0.5, "preemptible": 0}})
	count(denials("interactive", fixtures.gpus(1), [half], {"cpu": 16001})) == 1
	count(denials("train", fixtures.gpus(1), [half], {"cpu": 9223372036854775807, "hugepages-1Gi": gib})) == 0
}

test_pods_without_gpus if count(denials("train", fixtures.cpu, [dgx], {"cpu": 9223372036854775807})) == 0

test_largest_amounts if {
	count(denials("train", fixtures.gpus(1), [dgx], {"cpu": 9223372036854775807, "memory": 9223372036854775807, "ephemeral-storage": 1})) == 3
}
