package schedulers.kai_test

import data.fixtures
import data.schedulers.kai as policy

sharded(name, sharing, products) := object.union(object.remove(fixtures.pool(name, sharing, products), ["nodeSelector"]), {
	"scheduler": "kai",
	"nodeSelector": {"kai.scheduler/node-pool": name},
	"settings": {"queueLabelKey": "kai.scheduler/queue", "nodePoolLabelKey": "kai.scheduler/node-pool", "schedulerName": "kai-scheduler"},
})

a := sharded("a", "KAI", [{"memoryMiB": 81920, "profiles": []}])

b := sharded("b", "KAI", [{"memoryMiB": 81920, "profiles": []}])

cut := object.union(fixtures.cut, {"scheduler": "kai", "nodeSelector": {"kai.scheduler/node-pool": "cut"}})

asked(workload, pools) := object.union(fixtures.asked(workload, pools), {"parameters": {"krm": "own"}})

test_says_scheduler_queue_shard_and_preemptibility if {
	policy.overrides == {
		"spec": {"schedulerName": "kai-scheduler"},
		"metadata": {
			"labels": {"kai.scheduler/queue": "thesis.a", "kai.scheduler/node-pool": "a", "kai.scheduler/preemptibility": "preemptible"},
			"annotations": {"sluice.dev/node-pools": "a,b"},
		},
	} with input as asked(fixtures.gpus(1), [a, b])
}

test_says_nothing_of_others if {
	not policy.here with input as asked(fixtures.cpu, [a])
	not policy.here with input as asked(fixtures.gpus(1), [fixtures.whole])
}

test_interactive_and_inference_cannot_be_preempted if {
	some type in ["interactive", "inference"]
	policy.preemptibility == "non-preemptible" with input as asked(object.union(fixtures.gpus(1), {"type": type}), [a])
}

test_keys_are_those_of_the_cluster if {
	renamed := object.union(a, {"settings": {"queueLabelKey": "runai/queue", "schedulerName": "runai-scheduler"}})
	policy.overrides.metadata.labels["runai/queue"] == "thesis.a" with input as asked(fixtures.gpus(1), [renamed])
	policy.overrides.spec.schedulerName == "runai-scheduler" with input as asked(fixtures.gpus(1), [renamed])
}

test_without_a_shard_of_its_own_a_pool_is_the_only_one if {
	bare := object.remove(b, ["nodeSelector"])
	pools := [object.union(bare, {"name": name, "nodeSelector": {"pool": name}}) | some name in ["x", "y"]]
	policy.overrides.metadata.annotations["sluice.dev/node-pools"] == "x" with input as asked(fixtures.gpus(1), pools)
	policy.nodes == {{"key": "pool", "operator": "In", "values": ["x"]}} with input as asked(fixtures.gpus(1), pools)
	["metadata", "labels", "kai.scheduler/node-pool"] in policy.remove with input as asked(fixtures.gpus(1), pools)
	policy.nodes == set() with input as asked(fixtures.gpus(1), [a, b])
}

annotations(workload, pools) := object.remove(said, ["sluice.dev/node-pools"]) if {
	said := policy.overrides.metadata.annotations with input as asked(workload, pools)
}

test_shares_by_annotations if {
	annotations(fixtures.share(0.3), [a]) == {"gpu-fraction": "0.3"}
	annotations(fixtures.memory(8192), [a]) == {"gpu-memory": "8192"}
	annotations(fixtures.gpus(1), [a]) == {}
	annotations(object.union(fixtures.share(0.25), {"devices": 3, "container": "side"}), [a]) == {
		"gpu-fraction": "0.25", "gpu-fraction-num-devices": "3", "gpu-fraction-container-name": "side",
	}
}

test_what_stands_there_stays_as_it_is_written if {
	said := object.union(asked(fixtures.share(0.5), [a]), {"object": {"metadata": {"annotations": {"gpu-fraction": "0.50"}}}})
	not policy.overrides.metadata.annotations["gpu-fraction"] with input as said
}

test_a_slice_is_asked_for_without_annotations if {
	said := object.union(asked(fixtures.share(0.3), [cut]), {"object": {"metadata": {"annotations": {"gpu-fraction": "0.3", "mps": "true"}}}})
	["metadata", "annotations", "gpu-fraction"] in policy.remove with input as said
	["metadata", "annotations", "mps"] in policy.remove with input as said
	kept := object.union(asked(fixtures.share(0.3), [a]), {"object": {"metadata": {"annotations": {"gpu-fraction": "0.3"}}}})
	not ["metadata", "annotations", "gpu-fraction"] in policy.remove with input as kept
}

refused(metadata) := {complaint.field |
	some complaint in policy.deny with input as object.union(asked(fixtures.gpus(1), [a, b]), {"object": {"metadata": metadata}})
}

test_queues_and_groups_of_others if {
	refused({"labels": {"kai.scheduler/queue": "other.a"}}) == {"metadata.labels[kai.scheduler/queue]"}
	refused({"labels": {"kai.scheduler/queue": "thesis.b"}}) == set()
	refused({"annotations": {"pod-group-name": "theirs"}}) == {"metadata.annotations[pod-group-name]"}
	refused({"annotations": {"kai.scheduler/skip-podgrouper": "true"}}) == {"metadata.annotations[kai.scheduler/skip-podgrouper]"}
}

test_a_queue_whose_name_no_label_can_have if {
	long := object.union(a, {"name": "a-pool-with-a-name-that-is-much-longer-than-it-needs-to-be-ok"})
	some complaint in policy.deny with input as asked(fixtures.gpus(1), [long])
	contains(complaint.msg, "limits queue names to 63 characters")
}

test_a_queue_for_each_pool_of_a_project if {
	rendered := policy.objects with input as {
		"object": {"kind": "Project"}, "project": object.union(fixtures.project, {"resources": {}}),
		"department": {"name": "students"}, "nodePools": [a, fixtures.whole], "parameters": {"krm": "own"},
	}
	rendered == {{
		"apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
		"metadata": {"name": "thesis.a", "labels": {"kai.scheduler/queue": "thesis.a", "kai.scheduler/node-pool": "a"}},
		"spec": {
			"displayName": "thesis", "parentQueue": "department.students.a",
			"resources": {
				"gpu": {"quota": 1, "limit": 2, "overQuotaWeight": 1},
				"cpu": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
				"memory": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
			},
		},
	}}
}

test_a_queue_for_each_pool_of_a_department if {
	names := {queue.metadata.name |
		some queue in policy.objects with input as {
			"object": {"kind": "Department"}, "department": {"name": "students", "resources": {}},
			"nodePools": [a, b], "parameters": {"krm": "own"},
		}
	}
	names == {"department.students.a", "department.students.b"}
}

test_declared_to_kai_resource_management_instead if {
	rendered := policy.objects with input as {
		"object": {"kind": "Project"}, "project": object.union(fixtures.project, {"resources": {}}),
		"department": {"name": "students"}, "nodePools": [a], "parameters": {"krm": "adopt"},
	}
	{object.kind | some object in rendered} == {"Project"}
	some project in rendered
	project.spec.parent == "students"
	project.spec.queues[0].resources.gpu == {"deserved": 1, "limit": 2, "overQuotaWeight": 1}
	policy.overrides.metadata.annotations == {"kai.scheduler/node-pools": "a b"} with input as object.union(asked(fixtures.gpus(1), [a, b]), {"parameters": {"krm": "adopt"}})
}

test_what_the_cluster_needs if {
	needs := policy.requires with input as {"object": {"kind": "NodePool"}, "nodePool": a, "parameters": {"krm": "own"}}
	{need.crd | some need in needs} == {"queues.scheduling.run.ai", "podgroups.scheduling.run.ai"}
	{need.as | some need in needs} == {"queueLabelKey", "nodePoolLabelKey", "schedulerName"}
	{path: need.is | some need in needs; path := need.setting.path[2]; need.is} == {"gpuSharing": true, "mutatingWebhookConfigurationName": "zz-kai-admission"}
	policy.requires == set() with input as {"object": {"kind": "NodePool"}, "nodePool": fixtures.whole, "parameters": {"krm": "own"}}
}
