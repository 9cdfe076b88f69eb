# Pods, queues and requirements of KAI-Scheduler. The scheduler counts the use itself, in
# a tree of queues for each node pool, and preempts pods by their labels.
package schedulers.kai

import data.sluice.lib.ask
import data.sluice.lib.containers
import data.sluice.lib.kai
import data.sluice.lib.kai_queues
import data.sluice.lib.pools

here if {
	ask.gpu
	pools.first.scheduler == "kai"
}

overrides.spec.schedulerName := kai.scheduler(pools.first) if here

overrides.metadata.labels[key] := queue if {
	here
	key := kai.queue_key(pools.first)
}

queue := kai.queue(input.project.name, pools.first)

overrides.metadata.labels[key] := shard if {
	here
	shard := kai.shard(pools.first)
	key := kai.shard_key(pools.first)
}

remove contains ["metadata", "labels", key] if {
	here
	not kai.shard(pools.first)
	key := kai.shard_key(pools.first)
}

# Without the label, KAI takes every priority below 100 as preemptible, and all classes
# of Sluice are below.
overrides.metadata.labels["kai.scheduler/preemptibility"] := preemptibility if here

default preemptibility := "non-preemptible"

preemptibility := "preemptible" if ask.preemptible

# KAI prefers this label to the pod's own class.
remove contains ["metadata", "labels", "priorityClassName"] if here

# The annotation lists the pools of the pod: lifecycle tries the next one if one is
# full. kai-resource-management has its own annotation.
overrides.metadata.annotations["sluice.dev/node-pools"] := concat(",", [pool.name | some pool in tried]) if {
	here
	not adopts
}

overrides.metadata.annotations["kai.scheduler/node-pools"] := concat(" ", [kai.shard_name(pool) | some pool in tried]) if {
	here
	adopts
}

remove contains ["metadata", "annotations", "kai.scheduler/node-pools"] if {
	here
	not adopts
}

# KAI distinguishes node pools only by its own label. If several pools of Sluice are one
# shard, the pod stays in the first pool, which is charged.
tried := pools.chosen if count({kai.shard(pool) | some pool in pools.chosen}) == count(pools.chosen)

else := [pools.first]

nodes contains {"key": key, "operator": "In", "values": [value]} if {
	here
	count(tried) == 1
	some key, value in pools.first.nodeSelector
}

# Annotations request a share for one container.
shares if {
	here
	pools.granted.resource == ""
}

overrides.metadata.annotations["gpu-fraction"] := sprintf("%v", [input.workload.share]) if {
	shares
	input.workload.form == "Share"
	not input.object.metadata.annotations["gpu-fraction"]
}

overrides.metadata.annotations["gpu-memory"] := sprintf("%d", [input.workload.memoryMiB]) if {
	shares
	input.workload.form == "Memory"
	not input.object.metadata.annotations["gpu-memory"]
}

overrides.metadata.annotations["gpu-fraction-num-devices"] := sprintf("%d", [input.workload.devices]) if {
	shares
	input.workload.devices > 1
	not input.object.metadata.annotations["gpu-fraction-num-devices"]
}

overrides.metadata.annotations["gpu-fraction-container-name"] := input.workload.container if {
	shares
	input.workload.container != containers.main
}

# KAI admits a pod with both a resource and these annotations, but never schedules it.
remove contains ["metadata", "annotations", key] if {
	here
	pools.granted.resource != ""
	some key in {"gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name", "mps"}
	input.object.metadata.annotations[key]
}

deny contains {
	"msg": sprintf("queue %s is not that of project %s in node pool %s, which is %s", [said, input.project.name, pools.first.name, queue]),
	"field": sprintf("metadata.labels[%s]", [key]),
	"fix": "leave the label out; it is set from the namespace's project",
} if {
	here
	key := kai.queue_key(pools.first)
	said := input.object.metadata.labels[key]
	not said in {kai.queue(input.project.name, pool) | some pool in input.nodePools}
}

deny contains {
	"msg": sprintf("the queue of project %s in node pool %s would be named %s, but KAI-Scheduler limits queue names to 63 characters", [input.project.name, pools.first.name, queue]),
	"fix": "ask the cluster administrators for a node pool with a shorter name",
} if {
	here
	count(queue) > 63
}

# Only KAI assigns a pod to a group. Otherwise another queue, or none, would count it.
deny contains {
	"msg": sprintf("only KAI-Scheduler writes the annotation %s", [key]),
	"field": sprintf("metadata.annotations[%s]", [key]),
	"fix": "take it out",
} if {
	some pool in input.nodePools
	pool.scheduler == "kai"
	some key in {"pod-group-name", "kai.scheduler/skip-podgrouper"}
	input.object.metadata.annotations[key]
}

# The quotas of a project and of its department in each pool.
objects contains object.union(
	kai_queues.of(input.project, kai.queue(input.project.name, pool), pool),
	{"spec": {"parentQueue": kai.department_queue(input.project.department, pool)}},
) if {
	input.object.kind == "Project"
	not adopts
	some pool in served
}

objects contains kai_queues.of(input.department, kai.department_queue(input.department.name, pool), pool) if {
	input.object.kind == "Department"
	not adopts
	some pool in served
}

served := [pool | some pool in input.nodePools; pool.scheduler == "kai"]

# Either kai-resource-management or Sluice creates the queues of a project, never both.
adopts if input.parameters.krm == "adopt"

objects contains object.union(declared(input.project.name, "Project"), {"spec": {
	"parent": input.project.department,
	"namespace": input.project.namespace,
	"defaultNodePools": [kai.shard_name(pool) | some pool in served],
	"queues": [kai_queues.declared(input.project, kai.queue(input.project.name, pool), pool) | some pool in served],
}}) if {
	input.object.kind == "Project"
	adopts
	count(served) > 0
}

objects contains object.union(declared(input.department.name, "Department"), {"spec": {"queues": [
kai_queues.declared(input.department, kai.department_queue(input.department.name, pool), pool) | some pool in served]}}) if {
	input.object.kind == "Department"
	adopts
	count(served) > 0
}

declared(name, kind) := {"apiVersion": "kai.resources/v1alpha1", "kind": kind, "metadata": {"name": name}}

requires contains {"crd": name, "version": version, "fix": "install KAI-Scheduler 0.17 or later"} if {
	input.nodePool.scheduler == "kai"
	some name, version in {"queues.scheduling.run.ai": "v2", "podgroups.scheduling.run.ai": "v2alpha2"}
}

requires contains {"crd": name, "version": "v1alpha1", "fix": "install kai-resource-management, or set the parameter krm of policy schedulers.kai to own"} if {
	input.nodePool.scheduler == "kai"
	adopts
	some name in {"projects.kai.resources", "departments.kai.resources"}
}

requires contains {
	"setting": {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "name": name, "path": ["value"]},
	"fix": sprintf("apply Sluice's PriorityClass %s: without it KAI-Scheduler gives all pods the same priority", [name]),
} if {
	input.nodePool.scheduler == "kai"
	some name in {"sluice-train", "sluice-interactive", "sluice-interactive-preemptible", "sluice-inference"}
}

requires contains {
	"setting": config(["spec", "admission", "gpuSharing"]),
	"is": true,
	"optional": true,
	"fix": "set global.gpuSharing: true in the values of KAI-Scheduler's chart, or set the node pool's sharing to None or MIG",
} if {
	input.nodePool.scheduler == "kai"
	input.nodePool.sharing == "KAI"
}

# The API server calls webhooks in the order of their configurations' names. KAI's webhook
# only handles pods with its scheduler name, which Sluice's webhook sets.
requires contains {
	"setting": config(["spec", "admission", "mutatingWebhookConfigurationName"]),
	"is": "zz-kai-admission",
	"optional": true,
	"fix": "set spec.admission.mutatingWebhookConfigurationName: zz-kai-admission in KAI-Scheduler's Config kai-config: its webhook, which prepares pods for a share, must be called after Sluice's",
} if {
	input.nodePool.scheduler == "kai"
	input.nodePool.sharing == "KAI"
}

requires contains {"setting": config(["spec", "global", name]), "as": name, "default": value} if {
	input.nodePool.scheduler == "kai"
	some name, value in kai.usual
}

config(path) := {"apiVersion": "kai.scheduler/v1", "kind": "Config", "name": "kai-config", "path": path}
