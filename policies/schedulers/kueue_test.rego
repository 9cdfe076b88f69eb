package schedulers.kueue_test

import data.fixtures
import data.schedulers.kueue as policy

# in_kueue returns a pool of Kueue.
in_kueue(pool) := object.union(pool, {"scheduler": "kueue", "quotaResource": "sluice.dev/gpu-milli", "settings": {}, "gpus": 8, "subscribed": 0})

whole := in_kueue(fixtures.whole)

mig := in_kueue(fixtures.mig)

gpu_input := fixtures.input_for(fixtures.gpus(1), [whole])

messages := {denial.msg | some denial in policy.deny}

test_scheduler_name if {
	policy.overrides.spec.schedulerName == "default-scheduler" with input as gpu_input
	not policy.overrides.spec.schedulerName with input as fixtures.input_for(fixtures.cpu, [whole])
	not policy.overrides.spec.schedulerName with input as fixtures.input_for(fixtures.gpus(1), [fixtures.whole])
}

labeled(queue) := {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}}

test_priority_class_of_kueue_is_denied if {
	pod := {"object": {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}}}
	fields == {"metadata.labels[kueue.x-k8s.io/priority-class]"} with input as object.union(fixtures.input_for(fixtures.cpu, [whole]), pod)
	fields == set() with input as object.union(fixtures.input_for(fixtures.cpu, []), pod)
}

fields := {denial.field | some denial in policy.deny}

test_other_queue_is_denied if {
	count(messages) == 0 with input as object.union(gpu_input, {"object": labeled("default")})
	every workload in [fixtures.gpus(1), fixtures.cpu] {
		messages == {"queue other does not belong to project thesis, whose queue is default"} with input as object.union(fixtures.input_for(workload, [whole]), {"object": labeled("other")})
	}

	# Without a pool of Kueue, its labels have no effect.
	count(messages) == 0 with input as object.union(fixtures.input_for(fixtures.gpus(1), [fixtures.whole]), {"object": labeled("other")})
}

# mutated returns the input for a pod that the webhook has already mutated, with this
# owner and these gates.
mutated(owner, gates) := object.union(
	fixtures.input_for(object.union(fixtures.gpus(1), {"owner": owner}), [whole]),
	{
		"object": {"metadata": {"annotations": {"sluice.dev/evaluated-under": "6ed312096c7768e8"}}, "spec": {"schedulingGates": [{"name": gate} | some gate in gates]}},
		"review": {"kind": {"group": "", "version": "v1", "kind": "Pod"}},
	},
)

no_owner := {"group": "", "kind": ""}

test_scheduling_gate if {
	some message in messages with input as mutated(no_owner, ["other"])
	startswith(message, "Kueue's webhook did not process the pod")
	count(messages) == 0 with input as mutated(no_owner, ["other", "kueue.x-k8s.io/admission"])
	every owner in [{"group": "batch", "kind": "Job"}, {"group": "kubeflow.org", "kind": "PyTorchJob"}, {"group": "ray.io", "kind": "RayCluster"}] {
		count(messages) == 0 with input as mutated(owner, [])
	}
	every owner in [{"group": "apps", "kind": "ReplicaSet"}, {"group": "apps", "kind": "StatefulSet"}, {"group": "mine", "kind": "Job"}] {
		count(messages) == 1 with input as mutated(owner, [])
	}
}

test_scheduling_gate_is_required_of_mutated_gpu_pods if {
	count(messages) == 0 with input as json.remove(mutated(no_owner, []), ["object/metadata"])
	count(messages) == 0 with input as object.union(mutated(no_owner, []), {"review": {"kind": {"group": "apps", "kind": "StatefulSet"}}})
	count(messages) == 0 with input as object.union(mutated(no_owner, []), {"workload": fixtures.cpu})
	count(messages) == 0 with input as object.union(mutated(no_owner, []), {"nodePools": [fixtures.whole]})
}

# in_group returns the input for a pod of a pod group with this hash and a share.
in_group(hash) := object.union(
	fixtures.input_for(fixtures.share(0.3), [mig]),
	{"object": {"metadata": {
		"labels": {"kueue.x-k8s.io/pod-group-name": "g"},
		"annotations": {"kueue.x-k8s.io/role-hash": hash},
	}}},
)

test_role_hash_includes_charge if {
	every hash in ["ab12cd34", "ab12cd34-500", "ab12cd34-1-2"] {
		policy.overrides.metadata.annotations == {"kueue.x-k8s.io/role-hash": "ab12cd34-500"} with input as in_group(hash)
	}
	not policy.overrides.metadata.annotations["kueue.x-k8s.io/role-hash"] with input as json.remove(in_group("ab12cd34"), ["object/metadata/labels"])
}

# rendered returns the specs of the rendered objects, by kind and name.
rendered(policy_input) := {sprintf("%s %s", [object.kind, object.metadata.name]): object.spec |
	some object in policy.objects with input as policy_input
}

project_input(pools) := {"object": {"kind": "Project"}, "project": fixtures.project, "nodePools": pools}

flavor(name, nominal, borrowed) := {"name": name, "resources": [{
	"name": "sluice.dev/gpu-milli", "nominalQuota": nominal, "borrowingLimit": borrowed,
}]}

resource_groups(flavors) := [{"coveredResources": ["sluice.dev/gpu-milli"], "flavors": flavors}]

test_project if {
	pools := [fixtures.time_sliced, object.union(whole, {"weight": 3}), object.union(mig, {"guaranteed": 0.5, "limit": 0.5, "weight": 0})]
	objects := rendered(project_input(pools))
	objects["ClusterQueue thesis"] == {
		"cohortName": "students",
		"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "thesis"}},
		"resourceGroups": resource_groups([flavor("whole", "1k", "1k"), flavor("mig", "500", "0")]),
		"fairSharing": {"weight": "3"},
		"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
	}
	objects["LocalQueue default"] == {"clusterQueue": "thesis", "stopPolicy": "None"}
	objects["ResourceQuota sluice"] == {"hard": {"requests.sluice.dev/gpu-milli": "2500", "requests.sluice.dev/guaranteed-milli.whole": "1000", "requests.sluice.dev/guaranteed-milli.mig": "500"}}
	count(objects) == 3
}

# A closed project keeps its quotas: what runs, and what replaces it, is counted.
test_closed_project if {
	open := rendered(project_input([whole]))
	closed := rendered(object.union(project_input([whole]), {"project": {"closed": true}}))
	closed["LocalQueue default"].stopPolicy == "Hold"
	json.remove(closed, ["LocalQueue default"]) == json.remove(open, ["LocalQueue default"])
}

test_namespaces_of_project_objects if {
	objects := {[object.kind, object.metadata] | some object in policy.objects with input as project_input([whole])}
	{kind | some [kind, metadata] in objects; metadata.namespace == "thesis"} == {"LocalQueue", "ResourceQuota"}
	{kind | some [kind, metadata] in objects; not metadata.namespace} == {"ClusterQueue"}
}

test_project_without_kueue_pools if {
	count(rendered(project_input([fixtures.whole]))) == 0
}

department_input(pools) := {"object": {"kind": "Department"}, "department": {"name": "students"}, "nodePools": pools}

test_department if {
	reserved := object.union(whole, {"guaranteed": 6, "subscribed": 4, "limit": 8, "weight": 2})
	oversubscribed := object.union(mig, {"guaranteed": 2, "subscribed": 3, "limit": 2.5})
	rendered(department_input([fixtures.time_sliced, reserved, oversubscribed])) == {"Cohort students": {
		"parentName": "sluice.root",
		"resourceGroups": resource_groups([flavor("whole", "2k", "2k"), flavor("mig", "0", "0")]),
		"fairSharing": {"weight": "2"},
	}}
	count(rendered(department_input([fixtures.time_sliced]))) == 0
}

pool_input(pool) := {"object": {"kind": "NodePool"}, "nodePool": pool}

test_node_pool if {
	rendered(pool_input(object.union(whole, {"gpus": 16, "subscribed": 4.5}))) == {
		"ResourceFlavor whole": {"nodeLabels": {"pool": "whole"}},
		"ClusterQueue nodepool.whole": {"cohortName": "sluice.root", "resourceGroups": resource_groups([flavor("whole", "11500", "0")])},
	}
	rendered(pool_input(object.union(whole, {"subscribed": 9})))["ClusterQueue nodepool.whole"].resourceGroups == resource_groups([flavor("whole", "0", "0")])
	count(rendered(pool_input(object.union(fixtures.whole, {"gpus": 8, "subscribed": 0})))) == 0
}

test_quantity_is_canonical if {
	{policy.quantity(gpus) | some gpus in [-1, 0, 0.001, 0.5, 1, 1.5, 16, 1000, 1500, 2000]} == {"0", "1", "500", "1k", "1500", "16k", "1M", "1500k", "2M"}
}

test_requirements if {
	requirements := policy.requires with input as pool_input(whole)
	{requirement.crd | some requirement in requirements} == {
		"clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io",
		"resourceflavors.kueue.x-k8s.io", "workloads.kueue.x-k8s.io",
	}
	{concat(".", array.slice(requirement.setting.path, 2, 9)) | some requirement in requirements} == {
		"fairSharing", "integrations.frameworks", "managedJobsNamespaceSelector", "resources.excludeResourcePrefixes",
	}
	every requirement in requirements { requirement.fix }
	named := object.union(whole, {"resources": [{"name": "amd.com/gpu", "gpus": 1}, {"name": "nvidia.com/a100", "gpus": 1}]})
	excluded := [requirement | some requirement in policy.requires; requirement.setting.path[3] == "excludeResourcePrefixes"] with input as pool_input(named)
	excluded[0].is == ["cpu", "memory", "nvidia.com/", "sluice.dev/gpu-milli.", "sluice.dev/guaranteed-milli", "amd.com/gpu"]
	contains(excluded[0].fix, "sluice.dev/guaranteed-milli, amd.com/gpu to resources")
	count(policy.requires) == 0 with input as pool_input(fixtures.whole)
	count(policy.requires) == 0 with input as project_input([whole])
}
