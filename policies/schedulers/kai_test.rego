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

mig := object.union(fixtures.mig, {"scheduler": "kai", "nodeSelector": {"kai.scheduler/node-pool": "mig"}})

pod_input(workload, pools) := object.union(fixtures.input_for(workload, pools), {"parameters": {"krm": "own"}})

test_sets_scheduler_queue_shard_and_preemptibility if {
	policy.overrides == {
		"spec": {"schedulerName": "kai-scheduler"},
		"metadata": {
			"labels": {"kai.scheduler/queue": "thesis.a", "kai.scheduler/node-pool": "a", "kai.scheduler/preemptibility": "preemptible"},
			"annotations": {"sluice.dev/node-pools": "a,b"},
		},
	} with input as pod_input(fixtures.gpus(1), [a, b])
}

test_other_pods if {
	not policy.scheduled_by_kai with input as pod_input(fixtures.cpu, [a])
	not policy.scheduled_by_kai with input as pod_input(fixtures.gpus(1), [fixtures.whole])
}

test_interactive_and_inference_cannot_be_preempted if {
	some type in ["interactive", "inference"]
	policy.preemptibility == "non-preemptible" with input as pod_input(object.union(fixtures.gpus(1), {"type": type}), [a])
}

test_keys_of_installation if {
	renamed := object.union(a, {"settings": {"queueLabelKey": "runai/queue", "schedulerName": "runai-scheduler"}})
	policy.overrides.metadata.labels["runai/queue"] == "thesis.a" with input as pod_input(fixtures.gpus(1), [renamed])
	policy.overrides.spec.schedulerName == "runai-scheduler" with input as pod_input(fixtures.gpus(1), [renamed])
}

test_pools_without_shard_use_first_pool_only if {
	bare := object.remove(b, ["nodeSelector"])
	pools := [object.union(bare, {"name": name, "nodeSelector": {"pool": name}}) | some name in ["x", "y"]]
	policy.overrides.metadata.annotations["sluice.dev/node-pools"] == "x" with input as pod_input(fixtures.gpus(1), pools)
	policy.nodes == {{"key": "pool", "operator": "In", "values": ["x"]}} with input as pod_input(fixtures.gpus(1), pools)
	["metadata", "labels", "kai.scheduler/node-pool"] in policy.remove with input as pod_input(fixtures.gpus(1), pools)
	policy.nodes == set() with input as pod_input(fixtures.gpus(1), [a, b])
}

annotations(workload, pools) := object.remove(added, ["sluice.dev/node-pools"]) if {
	added := policy.overrides.metadata.annotations with input as pod_input(workload, pools)
}

test_memory_limit if {
	limited := object.union(fixtures.memory(8192), {"memoryLimitMiB": 16384})
	annotations(limited, [object.union(a, {"burst": "Allow"})]) == {"gpu-memory": "8192", "gpu-memory.limit": "16384Mi"}
	annotations(object.union(limited, {"memoryLimitMiB": 8192}), [a]) == {"gpu-memory": "8192"}
}

test_share_annotations if {
	annotations(fixtures.share(0.3), [a]) == {"gpu-fraction": "0.3"}
	annotations(fixtures.share(0.125), [a]) == {"gpu-fraction": "0.13"}
	annotations(fixtures.share(0.004), [a]) == {"gpu-fraction": "0.01"}
	annotations(fixtures.share(0.999), [a]) == {}
	annotations(fixtures.memory(8192), [a]) == {"gpu-memory": "8192"}
	annotations(fixtures.gpus(1), [a]) == {}
	annotations(object.union(fixtures.share(0.25), {"devices": 3, "container": "side"}), [a]) == {
		"gpu-fraction": "0.25", "gpu-fraction-num-devices": "3", "gpu-fraction-container-name": "side",
	}
}

test_existing_annotation_is_unchanged if {
	existing := object.union(pod_input(fixtures.share(0.5), [a]), {"object": {"metadata": {"annotations": {"gpu-fraction": "0.50"}}}})
	not policy.overrides.metadata.annotations["gpu-fraction"] with input as existing
	rounded := object.union(pod_input(fixtures.share(0.125), [a]), {"object": {"metadata": {"annotations": {"gpu-fraction": "0.125"}}}})
	policy.overrides.metadata.annotations["gpu-fraction"] == "0.13" with input as rounded
}

test_slice_needs_no_annotations if {
	sliced := object.union(pod_input(fixtures.share(0.3), [mig]), {"object": {"metadata": {"annotations": {"gpu-fraction": "0.3", "mps": "true"}}}})
	["metadata", "annotations", "gpu-fraction"] in policy.remove with input as sliced
	["metadata", "annotations", "mps"] in policy.remove with input as sliced
	shared := object.union(pod_input(fixtures.share(0.3), [a]), {"object": {"metadata": {"annotations": {"gpu-fraction": "0.3"}}}})
	not ["metadata", "annotations", "gpu-fraction"] in policy.remove with input as shared
}

denied_fields(metadata) := {denial.field |
	some denial in policy.deny with input as object.union(pod_input(fixtures.gpus(1), [a, b]), {"object": {"metadata": metadata}})
}

test_queues_and_groups_of_other_projects if {
	denied_fields({"labels": {"kai.scheduler/queue": "other.a"}}) == {"metadata.labels[kai.scheduler/queue]"}
	denied_fields({"labels": {"kai.scheduler/queue": "thesis.b"}}) == set()
	denied_fields({"annotations": {"pod-group-name": "other"}}) == {"metadata.annotations[pod-group-name]"}
	denied_fields({"annotations": {"kai.scheduler/skip-podgrouper": "true"}}) == {"metadata.annotations[kai.scheduler/skip-podgrouper]"}
}

test_queue_name_too_long_for_label if {
	long := object.union(a, {"name": "a-pool-with-a-name-that-is-much-longer-than-it-needs-to-be-ok"})
	some denial in policy.deny with input as pod_input(fixtures.gpus(1), [long])
	contains(denial.msg, "limits queue names to 63 characters")
}

test_queues_of_project if {
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

test_queues_of_department if {
	names := {queue.metadata.name |
		some queue in policy.objects with input as {
			"object": {"kind": "Department"}, "department": {"name": "students", "resources": {}},
			"nodePools": [a, b], "parameters": {"krm": "own"},
		}
	}
	names == {"department.students.a", "department.students.b"}
}

test_krm_project if {
	rendered := policy.objects with input as {
		"object": {"kind": "Project"}, "project": object.union(fixtures.project, {"resources": {}}),
		"department": {"name": "students"}, "nodePools": [a], "parameters": {"krm": "adopt"},
	}
	{object.kind | some object in rendered} == {"Project"}
	some project in rendered
	project.spec.parent == "students"
	project.spec.queues[0].resources.gpu == {"deserved": 1, "limit": 2, "overQuotaWeight": 1}
	policy.overrides.metadata.annotations == {"kai.scheduler/node-pools": "a b"} with input as object.union(pod_input(fixtures.gpus(1), [a, b]), {"parameters": {"krm": "adopt"}})
}

test_requirements if {
	requirements := policy.requires with input as {"object": {"kind": "NodePool"}, "nodePool": a, "parameters": {"krm": "own"}}
	{requirement.crd | some requirement in requirements} == {"queues.scheduling.run.ai", "podgroups.scheduling.run.ai"}
	{requirement.as | some requirement in requirements} == {"queueLabelKey", "nodePoolLabelKey", "schedulerName", "updatePodEvictionCondition", "runtimeClass", "podRuntimeClass"}
	some requirement in requirements
	requirement.setting.kind == "SchedulingShard"
	requirement.setting.where == {"path": ["spec", "partitionLabelValue"], "is": "a"}
	requirement.is == "true"
	requirement.advisory
	contains(requirement.fix, "spec.partitionLabelValue is \"a\"")
	{name | some other in requirements; other.setting.kind == "RuntimeClass"; name := other.setting.name} == {"nvidia"}
	{path: needed.is | some needed in requirements; needed.setting.kind == "Config"; path := needed.setting.path[2]; needed.is} == {"gpuSharing": true, "mutatingWebhookConfigurationName": "zz-kai-admission"}
}

test_requires_the_runtime_class_of_shares if {
	with_class := policy.requires with input as {"object": {"kind": "NodePool"}, "nodePool": object.union(a, {"settings": {"runtimeClass": "nvidia-cdi"}}), "parameters": {"krm": "own"}}
	{requirement.setting.name | some requirement in with_class; requirement.setting.kind == "RuntimeClass"} == {"nvidia-cdi"}
	of_pods := policy.requires with input as {"object": {"kind": "NodePool"}, "nodePool": object.union(a, {"settings": {"podRuntimeClass": "nvidia-cdi"}}), "parameters": {"krm": "own"}}
	{requirement.default | some requirement in of_pods; requirement.as == "runtimeClass"} == {"nvidia-cdi"}

	# An empty name switches the class off.
	without_class := policy.requires with input as {"object": {"kind": "NodePool"}, "nodePool": object.union(a, {"settings": {"runtimeClass": ""}}), "parameters": {"krm": "own"}}
	{requirement | some requirement in without_class; requirement.setting.kind == "RuntimeClass"} == set()
	whole := policy.requires with input as {"object": {"kind": "NodePool"}, "nodePool": object.union(a, {"sharing": "None"}), "parameters": {"krm": "own"}}
	{requirement.setting.kind | some requirement in whole; requirement.setting.kind == "RuntimeClass"} == set()
	policy.requires == set() with input as {"object": {"kind": "NodePool"}, "nodePool": fixtures.whole, "parameters": {"krm": "own"}}
}
