package schedulers.kueue_test

import data.fixtures
import data.schedulers.kueue as policy

# queued is a pool as Kueue serves it.
queued(pool) := object.union(pool, {"scheduler": "kueue", "currency": "sluice.dev/gpu-milli", "settings": {}, "gpus": 8, "promised": 0})

whole := queued(fixtures.whole)

cut := queued(fixtures.cut)

asked := fixtures.asked(fixtures.gpus(1), [whole])

messages := {complaint.msg | some complaint in policy.deny}

test_names_the_scheduler if {
	policy.overrides.spec.schedulerName == "default-scheduler" with input as asked
	not policy.overrides.spec.schedulerName with input as fixtures.asked(fixtures.cpu, [whole])
	not policy.overrides.spec.schedulerName with input as fixtures.asked(fixtures.gpus(1), [fixtures.whole])
}

labeled(queue) := {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}}

test_one_queue_only if {
	count(messages) == 0 with input as object.union(asked, {"object": labeled("default")})
	every workload in [fixtures.gpus(1), fixtures.cpu] {
		messages == {"queue other is not that of project thesis, which is default"} with input as object.union(fixtures.asked(workload, [whole]), {"object": labeled("other")})
	}

	# Where Kueue serves no pool, what its labels say is nothing.
	count(messages) == 0 with input as object.union(fixtures.asked(fixtures.gpus(1), [fixtures.whole]), {"object": labeled("other")})
}

# seen is a pod that the webhook has seen, of an owner and with these gates.
seen(owner, gates) := object.union(
	fixtures.asked(object.union(fixtures.gpus(1), {"owner": owner}), [whole]),
	{
		"object": {"metadata": {"annotations": {"sluice.dev/decisions": "{}"}}, "spec": {"schedulingGates": [{"name": gate} | some gate in gates]}},
		"review": {"kind": {"group": "", "version": "v1", "kind": "Pod"}},
	},
)

nobody := {"group": "", "kind": ""}

test_the_gate if {
	some message in messages with input as seen(nobody, ["other"])
	startswith(message, "Kueue's webhook did not process the pod")
	count(messages) == 0 with input as seen(nobody, ["other", "kueue.x-k8s.io/admission"])
	every owner in [{"group": "batch", "kind": "Job"}, {"group": "kubeflow.org", "kind": "PyTorchJob"}, {"group": "ray.io", "kind": "RayCluster"}] {
		count(messages) == 0 with input as seen(owner, [])
	}
	every owner in [{"group": "apps", "kind": "ReplicaSet"}, {"group": "apps", "kind": "StatefulSet"}, {"group": "mine", "kind": "Job"}] {
		count(messages) == 1 with input as seen(owner, [])
	}
}

test_the_gate_is_asked_of_final_pods_alone if {
	count(messages) == 0 with input as json.remove(seen(nobody, []), ["object/metadata"])
	count(messages) == 0 with input as object.union(seen(nobody, []), {"review": {"kind": {"group": "apps", "kind": "StatefulSet"}}})
	count(messages) == 0 with input as object.union(seen(nobody, []), {"workload": fixtures.cpu})
	count(messages) == 0 with input as object.union(seen(nobody, []), {"nodePools": [fixtures.whole]})
}

# grouped is a pod of a group with a hash, that asks for a share.
grouped(hash) := object.union(
	fixtures.asked(fixtures.share(0.3), [cut]),
	{"object": {"metadata": {
		"labels": {"kueue.x-k8s.io/pod-group-name": "g"},
		"annotations": {"kueue.x-k8s.io/role-hash": hash},
	}}},
)

test_the_charge_is_part_of_the_role if {
	every hash in ["ab12cd34", "ab12cd34-500", "ab12cd34-1-2"] {
		policy.overrides.metadata.annotations == {"kueue.x-k8s.io/role-hash": "ab12cd34-500"} with input as grouped(hash)
	}
	not policy.overrides.metadata.annotations["kueue.x-k8s.io/role-hash"] with input as json.remove(grouped("ab12cd34"), ["object/metadata/labels"])
}

# rendered are the specs of the objects of one subject, by kind and name.
rendered(subject) := {sprintf("%s %s", [object.kind, object.metadata.name]): object.spec |
	some object in policy.objects with input as subject
}

of_project(pools) := {"object": {"kind": "Project"}, "project": fixtures.project, "nodePools": pools}

entry(name, nominal, borrowed) := {"name": name, "resources": [{
	"name": "sluice.dev/gpu-milli", "nominalQuota": nominal, "borrowingLimit": borrowed,
}]}

group(flavors) := [{"coveredResources": ["sluice.dev/gpu-milli"], "flavors": flavors}]

test_a_project if {
	pools := [fixtures.taken, object.union(whole, {"weight": 3}), object.union(cut, {"guaranteed": 0.5, "limit": 0.5, "weight": 0})]
	objects := rendered(of_project(pools))
	objects["ClusterQueue thesis"] == {
		"cohortName": "students",
		"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "thesis"}},
		"resourceGroups": group([entry("whole", "1k", "1k"), entry("cut", "500", "0")]),
		"fairSharing": {"weight": "3"},
		"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
	}
	objects["LocalQueue default"] == {"clusterQueue": "thesis"}
	objects["ResourceQuota sluice-kueue"] == {"hard": {"requests.sluice.dev/gpu-milli": "2500"}}
	objects["ResourceQuota sluice-kueue.guaranteed"].hard == {"requests.sluice.dev/gpu-milli": "1500"}
	count(objects) == 4
}

test_where_a_project_s_objects_are if {
	places := {[object.kind, object.metadata] | some object in policy.objects with input as of_project([whole])}
	{kind | some [kind, place] in places; place.namespace == "thesis"} == {"LocalQueue", "ResourceQuota"}
	{kind | some [kind, place] in places; not place.namespace} == {"ClusterQueue"}
	{place.labels | some [_, place] in places} == {{"app.kubernetes.io/managed-by": "sluice"}}
}

test_a_project_without_such_a_pool if {
	count(rendered(of_project([fixtures.whole]))) == 0
}

of_department(pools) := {"object": {"kind": "Department"}, "department": {"name": "students"}, "nodePools": pools}

test_a_department if {
	kept := object.union(whole, {"guaranteed": 6, "promised": 4, "limit": 8, "weight": 2})
	oversubscribed := object.union(cut, {"guaranteed": 2, "promised": 3, "limit": 2.5})
	rendered(of_department([fixtures.taken, kept, oversubscribed])) == {"Cohort students": {
		"parentName": "sluice.root",
		"resourceGroups": group([entry("whole", "2k", "2k"), entry("cut", "0", "0")]),
		"fairSharing": {"weight": "2"},
	}}
	count(rendered(of_department([fixtures.taken]))) == 0
}

of_pool(pool) := {"object": {"kind": "NodePool"}, "nodePool": pool}

test_a_pool if {
	rendered(of_pool(object.union(whole, {"gpus": 16, "promised": 4.5}))) == {
		"ResourceFlavor whole": {"nodeLabels": {"pool": "whole"}},
		"ClusterQueue nodepool.whole": {"cohortName": "sluice.root", "resourceGroups": group([entry("whole", "11500", "0")])},
	}
	rendered(of_pool(object.union(whole, {"promised": 9})))["ClusterQueue nodepool.whole"].resourceGroups == group([entry("whole", "0", "0")])
	count(rendered(of_pool(object.union(fixtures.whole, {"gpus": 8, "promised": 0})))) == 0
}

test_amounts_as_kueue_writes_them if {
	{policy.quantity(gpus) | some gpus in [-1, 0, 0.001, 0.5, 1, 1.5, 16, 1000, 1500, 2000]} == {"0", "1", "500", "1k", "1500", "16k", "1M", "1500k", "2M"}
}

test_what_is_required if {
	needs := policy.requires with input as of_pool(whole)
	{need.crd | some need in needs} == {
		"clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io",
		"resourceflavors.kueue.x-k8s.io", "workloads.kueue.x-k8s.io",
	}
	{concat(".", array.slice(need.setting.path, 2, 9)) | some need in needs} == {
		"fairSharing", "integrations.frameworks", "managedJobsNamespaceSelector", "resources.excludeResourcePrefixes",
	}
	every need in needs { need.fix }
	count(policy.requires) == 0 with input as of_pool(fixtures.whole)
	count(policy.requires) == 0 with input as of_project([whole])
}
