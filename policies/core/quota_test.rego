package core.quota_test

import data.core.quota as policy
import data.fixtures

pod_input(type, count) := fixtures.input_for(object.union(fixtures.gpus(count), {"type": type}), [fixtures.whole])

messages := {denial.msg | some denial in policy.deny}

limits := policy.overrides.spec.containers[0].resources.limits

# mutated returns the input for a pod that already has the project's label and a charge.
mutated(workload, pool) := object.union(
	fixtures.input_for(workload, [pool]),
	{"object": {
		"metadata": {"labels": {"sluice.dev/project": "thesis"}},
		"spec": {"containers": [{"name": "main", "resources": {"limits": {pool.quotaResource: "1"}}}]},
	}},
)

test_charges_the_main_container if {
	limits == {"sluice.dev/gpu-milli.whole": "2000"} with input as pod_input("train", 2)
	limits == {"sluice.dev/gpu-milli.mig": "500"} with input as fixtures.input_for(fixtures.share(0.3), [fixtures.mig])
	every type in ["interactive", "inference"] {
		limits == {"sluice.dev/gpu-milli.whole": "1000", "sluice.dev/guaranteed-milli.whole": "1000"} with input as pod_input(type, 1)
	}
	limits == {"sluice.dev/gpu-milli.whole": "1000"} with input as pod_input("interactive", 1)
		with input.object.spec.priorityClassName as "sluice-interactive-preemptible"
	not limits with input as fixtures.input_for(fixtures.cpu, [fixtures.whole])
}

test_removes_other_charges if {
	limit := "sluice.dev/gpu-milli.other"
	policy.remove == {["spec", "containers", {"name": "main"}, "resources", "limits", limit]} with input as fixtures.input_for(fixtures.cpu, [fixtures.whole])
		with input.object as fixtures.pod({limit: 1, "cpu": 1})
	policy.remove == {["spec", "initContainers", {"name": "a"}, "resources", "requests", "sluice.dev/gpu-milli.whole"]} with input as pod_input("train", 2)
		with input.object.spec.initContainers as [{"name": "a", "resources": {"requests": {"sluice.dev/gpu-milli.whole": 1}}}]
	count(policy.remove) == 0 with input as pod_input("train", 2) with input.object as fixtures.pod({"sluice.dev/gpu-milli.whole": 1})
	both := fixtures.pod({"sluice.dev/gpu-milli.whole": 1, "sluice.dev/guaranteed-milli.whole": 1})
	count(policy.remove) == 0 with input as pod_input("inference", 1) with input.object as both
	policy.remove == {["spec", "containers", {"name": "main"}, "resources", "limits", "sluice.dev/guaranteed-milli.whole"]} with input as pod_input("train", 1)
		with input.object as both
}

test_restricts_pod_to_charged_pool if {
	policy.nodes == {{"key": "pool", "operator": "In", "values": ["whole"]}} with input as pod_input("train", 1)
	count(policy.nodes) == 0 with input as fixtures.input_for(fixtures.cpu, [fixtures.whole])
}

test_several_pools if {
	queued := object.union(object.remove(fixtures.whole, ["nodeSelector"]), {"scheduler": "kueue"})
	first := object.union(queued, {"nodeSelector": {"zone": "a", "disk": "fast"}})
	second := object.union(queued, {"nodeSelector": {"zone": "b", "disk": "fast"}})
	policy.nodes == {{"key": "disk", "operator": "In", "values": ["fast"]}, {"key": "zone", "operator": "In", "values": ["a", "b"]}} with input as fixtures.input_for(fixtures.gpus(1), [first, second])
}

test_claims if {
	claim := object.union(fixtures.cpu, {"claims": [{"name": "gpu"}]})
	count(messages) == 1 with input as fixtures.input_for(claim, [fixtures.whole])
	count(messages) == 0 with input as fixtures.input_for(claim, [fixtures.whole]) with input.parameters.allowClaims as true
	messages == {"this version of Sluice does not count the devices of DeviceClass gpu.nvidia.com"} with input as fixtures.input_for(object.union(fixtures.cpu, {"deviceClasses": {"gpu.nvidia.com": 1}}), [])
}

test_uncharged_resources_are_denied if {
	count(messages) == 0 with input as mutated(fixtures.gpus(1), fixtures.whole)
	workload := object.union(fixtures.memory(20000), {"resources": {"nvidia.com/gpu": 1}})
	messages == {"the pod has 1 nvidia.com/gpu, which is 1 GPU of node pool mig, and would be counted as 0.5 of a GPU"} with input as mutated(workload, fixtures.mig)
	count(messages) == 0 with input as fixtures.input_for(workload, [fixtures.mig])
	replicas := object.union(fixtures.gpus(2), {"form": "Replica", "resources": {"nvidia.com/gpu.shared": 2}})
	count(messages) == 1 with input as fixtures.input_for(replicas, [fixtures.time_sliced])
	count(messages) == 1 with input as fixtures.input_for(fixtures.gpus(1), [])
}

test_pool_without_quota_is_denied if {
	uncounted := object.union(fixtures.whole, {"quotaApplied": false})
	denials := policy.deny with input as fixtures.input_for(fixtures.gpus(1), [uncounted])
	denials == {{
		"msg": "the GPU quota of project thesis is not applied yet in node pool whole",
		"fix": "try again in a moment; if the error persists, ask the cluster administrators to check the project's conditions",
	}}
	count(policy.deny) == 0 with input as fixtures.input_for(fixtures.cpu, [uncounted])

	# A pod of another pool is counted.
	count(policy.deny) == 0 with input as fixtures.input_for(fixtures.gpus(1), [fixtures.whole, uncounted])

	# The message of the quota would only distract.
	count(policy.deny) == 0 with input as fixtures.input_for(fixtures.gpus(1), [uncounted]) with input.project.closed as true
}

test_within_quota if {
	count(policy.deny) == 0 with input as pod_input("train", 2)
	count(policy.deny) == 0 with input as pod_input("inference", 1)
}

test_over_the_limit if {
	messages == {"the pod counts as 3 GPUs of node pool whole; project thesis may have 2 GPUs there"} with input as pod_input("train", 3)
	count(messages) == 1 with input as pod_input("inference", 3)
}

test_over_the_guarantee if {
	some message in messages with input as pod_input("inference", 2)
	endswith(message, "must fit the guarantee of project thesis, 1 GPU")
}

test_preemptible_pod_can_exceed_guarantee if {
	count(policy.deny) == 1 with input as pod_input("interactive", 2)
	count(policy.deny) == 0 with input as pod_input("interactive", 2)
		with input.object.spec.priorityClassName as "sluice-interactive-preemptible"
}

test_limit_of_zero if {
	none := object.union(fixtures.whole, {"limit": 0, "guaranteed": 0})
	some message in messages with input as fixtures.input_for(fixtures.gpus(1), [none])
	endswith(message, "may have no GPUs there")
}

test_resource_of_a_pool_s_name if {
	pool := fixtures.named({"nvidia.com/a100": 1})
	limits == {"sluice.dev/gpu-milli.named": "2000"} with input as fixtures.input_for(fixtures.named_gpus("nvidia.com/a100", 2), [pool])
	count(policy.deny) == 0 with input as fixtures.input_for(fixtures.named_gpus("nvidia.com/a100", 2), [pool])
	messages == {"the pod requests amd.com/gpu, which is no GPU of node pool named"} with input as fixtures.input_for(fixtures.named_gpus("amd.com/gpu", 1), [pool])
}

unlisted(name) := object.union(
	fixtures.input_for(object.union(fixtures.cpu, {"otherResources": [name]}), [fixtures.whole]),
	{"project": {"unlistedResources": {"nvidia.com/a100": "whole"}}},
)

test_resource_that_nodes_offer_and_no_list_knows if {
	messages == {"nodes of node pool whole offer nvidia.com/a100, and no list knows whether it is a GPU: it would be counted by no quota"} with input as unlisted("nvidia.com/a100")
	count(policy.warn) == 0 with input as unlisted("nvidia.com/a100")
}

test_resource_that_no_node_offers if {
	count(policy.deny) == 0 with input as unlisted("example.com/gpu")
	{warning.msg | some warning in policy.warn} == {"no node of a node pool offers example.com/gpu, and no list knows it"} with input as unlisted("example.com/gpu")
	count(policy.deny) == 1 with input as unlisted("example.com/gpu") with input.parameters.unlistedResources as "Deny"
	count(policy.warn) == 0 with input as unlisted("example.com/gpu") with input.parameters.unlistedResources as "Deny"
}
