package core.quota_test

import data.core.quota as policy
import data.fixtures

asked(type, count) := fixtures.asked(object.union(fixtures.gpus(count), {"type": type}), [fixtures.whole])

messages := {complaint.msg | some complaint in policy.deny}

limits := policy.overrides.spec.containers[0].resources.limits

# made is the input for a pod that already has the project's label and a charge.
made(workload, pool) := object.union(
	fixtures.asked(workload, [pool]),
	{"object": {
		"metadata": {"labels": {"sluice.dev/project": "thesis"}},
		"spec": {"containers": [{"name": "main", "resources": {"limits": {pool.currency: "1"}}}]},
	}},
)

test_charges_the_main_container if {
	limits == {"sluice.dev/gpu-milli.whole": "2000"} with input as asked("train", 2)
	limits == {"sluice.dev/gpu-milli.cut": "500"} with input as fixtures.asked(fixtures.share(0.3), [fixtures.cut])
	not limits with input as fixtures.asked(fixtures.cpu, [fixtures.whole])
}

test_takes_out_other_copies_of_the_charge if {
	limit := "sluice.dev/gpu-milli.other"
	policy.remove == {["spec", "containers", {"name": "main"}, "resources", "limits", limit]} with input as fixtures.asked(fixtures.cpu, [fixtures.whole])
		with input.object as fixtures.pod({limit: 1, "cpu": 1})
	policy.remove == {["spec", "initContainers", {"name": "a"}, "resources", "requests", "sluice.dev/gpu-milli.whole"]} with input as asked("train", 2)
		with input.object.spec.initContainers as [{"name": "a", "resources": {"requests": {"sluice.dev/gpu-milli.whole": 1}}}]
	count(policy.remove) == 0 with input as asked("train", 2) with input.object as fixtures.pod({"sluice.dev/gpu-milli.whole": 1})
}

test_runs_where_it_is_counted if {
	policy.nodes == {{"key": "pool", "operator": "In", "values": ["whole"]}} with input as asked("train", 1)
	count(policy.nodes) == 0 with input as fixtures.asked(fixtures.cpu, [fixtures.whole])
}

test_of_several_pools_in_any_of_them if {
	queued := object.union(object.remove(fixtures.whole, ["nodeSelector"]), {"scheduler": "kueue"})
	left := object.union(queued, {"nodeSelector": {"zone": "a", "disk": "fast"}})
	right := object.union(queued, {"nodeSelector": {"zone": "b", "disk": "fast"}})
	policy.nodes == {{"key": "disk", "operator": "In", "values": ["fast"]}, {"key": "zone", "operator": "In", "values": ["a", "b"]}} with input as fixtures.asked(fixtures.gpus(1), [left, right])
}

test_claims if {
	claim := object.union(fixtures.cpu, {"claims": [{"name": "gpu"}]})
	count(messages) == 1 with input as fixtures.asked(claim, [fixtures.whole])
	count(messages) == 0 with input as fixtures.asked(claim, [fixtures.whole]) with input.parameters.allowClaims as true
	count(messages) == 1 with input as fixtures.asked(object.union(fixtures.cpu, {"deviceClasses": {"gpu": 1}}), [])
}

test_nothing_is_had_that_is_not_counted if {
	count(messages) == 0 with input as made(fixtures.gpus(1), fixtures.whole)
	wish := object.union(fixtures.memory(20000), {"resources": {"nvidia.com/gpu": 1}})
	messages == {"the pod has 1 nvidia.com/gpu, which is 1 GPU of node pool cut, and would be counted as 0.5 of a GPU"} with input as made(wish, fixtures.cut)
	count(messages) == 0 with input as fixtures.asked(wish, [fixtures.cut])
	replicas := object.union(fixtures.gpus(2), {"form": "Replica", "resources": {"nvidia.com/gpu.shared": 2}})
	count(messages) == 1 with input as fixtures.asked(replicas, [fixtures.taken])
	count(messages) == 1 with input as fixtures.asked(fixtures.gpus(1), [])
}

test_what_is_guaranteed_is_counted_by_class if {
	inference := object.union(fixtures.gpus(1), {"type": "inference"})
	messages == {"a pod of type inference must fit the guarantee, which does not count priority class high"} with input as made(inference, fixtures.whole)
		with input.object.spec.priorityClassName as "high"
	count(messages) == 1 with input as made(inference, fixtures.whole)
	count(messages) == 0 with input as made(inference, fixtures.whole) with input.object.spec.priorityClassName as "sluice-inference"
	count(messages) == 0 with input as made(fixtures.gpus(1), fixtures.whole) with input.object.spec.priorityClassName as "high"
}

test_what_fits if {
	count(policy.deny) == 0 with input as asked("train", 2)
	count(policy.deny) == 0 with input as asked("inference", 1)
}

test_over_the_limit if {
	messages == {"the pod counts as 3 GPUs of node pool whole; project thesis may have 2 GPUs there"} with input as asked("train", 3)
	count(messages) == 1 with input as asked("inference", 3)
}

test_over_the_guarantee if {
	some message in messages with input as asked("inference", 2)
	endswith(message, "must fit the guarantee of project thesis, 1 GPU")
}

test_who_may_be_ended_may_go_over_it if {
	count(policy.deny) == 1 with input as asked("interactive", 2)
	count(policy.deny) == 0 with input as asked("interactive", 2)
		with input.object.spec.priorityClassName as "sluice-interactive-preemptible"
}

test_nothing_at_all if {
	none := object.union(fixtures.whole, {"limit": 0, "guaranteed": 0})
	some message in messages with input as fixtures.asked(fixtures.gpus(1), [none])
	endswith(message, "may have no GPUs there")
}
