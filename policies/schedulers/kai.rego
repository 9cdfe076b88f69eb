# Pods, queues and requirements of KAI-Scheduler. The scheduler counts usage itself, in a
# tree of queues for each node pool, and preempts pods by their labels.
package schedulers.kai

import data.sluice.lib.containers
import data.sluice.lib.kai
import data.sluice.lib.kai_queues
import data.sluice.lib.pools
import data.sluice.lib.quotas
import data.sluice.lib.request

scheduled_by_kai if {
	request.includes_gpu
	pools.preferred.scheduler == "kai"
}

overrides.spec.schedulerName := kai.scheduler_name(pools.preferred) if scheduled_by_kai

overrides.metadata.labels[key] := queue_name if {
	scheduled_by_kai
	key := kai.queue_label_key(pools.preferred)
}

queue_name := kai.queue_name(input.project.name, pools.preferred)

overrides.metadata.labels[key] := shard if {
	scheduled_by_kai
	shard := kai.shard(pools.preferred)
	key := kai.shard_label_key(pools.preferred)
}

remove contains ["metadata", "labels", key] if {
	scheduled_by_kai
	not kai.shard(pools.preferred)
	key := kai.shard_label_key(pools.preferred)
}

# Without the label, KAI treats every priority below 100 as preemptible. All classes of
# Sluice are below 100.
overrides.metadata.labels["kai.scheduler/preemptibility"] := preemptibility if scheduled_by_kai

default preemptibility := "non-preemptible"

preemptibility := "preemptible" if request.preemptible

# KAI prefers this label to the pod's priority class.
remove contains ["metadata", "labels", "priorityClassName"] if scheduled_by_kai

# The annotation lists the pools of the pod: lifecycle tries the next pool if one
# is full. kai-resource-management has its own annotation.
overrides.metadata.annotations["sluice.dev/node-pools"] := concat(",", [pool.name | some pool in pools.selected]) if {
	scheduled_by_kai
	not krm_adopted
}

overrides.metadata.annotations["kai.scheduler/node-pools"] := concat(" ", [kai.shard_name(pool) | some pool in pools.selected]) if {
	scheduled_by_kai
	krm_adopted
}

remove contains ["metadata", "annotations", "kai.scheduler/node-pools"] if {
	scheduled_by_kai
	not krm_adopted
}

nodes contains {"key": key, "operator": "In", "values": [value]} if {
	scheduled_by_kai
	count(pools.selected) == 1
	some key, value in pools.preferred.nodeSelector
}

# requests_share: the pod gets a share, which annotations request for one container.
requests_share if {
	scheduled_by_kai
	pools.grant.resource == ""
}

# KAI would count another share than the pod is charged if it had to round it.
overrides.metadata.annotations["gpu-fraction"] := sprintf("%v", [pools.grant.milli / 1000]) if {
	requests_share
	input.workload.form == "Share"
	not has_granted_fraction
}

# has_granted_fraction: the author wrote the granted share, such as "0.50".
has_granted_fraction if {
	input.object.metadata.annotations["gpu-fraction"]
	quotas.milli(input.workload.share) == pools.grant.milli
}

overrides.metadata.annotations["gpu-memory"] := sprintf("%d", [input.workload.memoryMiB]) if {
	requests_share
	input.workload.form == "Memory"
	not input.object.metadata.annotations["gpu-memory"]
}

# kai-gpu-fractioning reads the limit from KAI's own annotation, as a quantity.
overrides.metadata.annotations["gpu-memory.limit"] := sprintf("%dMi", [input.workload.memoryLimitMiB]) if {
	requests_share
	input.workload.form == "Memory"
	input.workload.memoryLimitMiB > input.workload.memoryMiB
	not input.object.metadata.annotations["gpu-memory.limit"]
}

overrides.metadata.annotations["gpu-fraction-num-devices"] := sprintf("%d", [input.workload.devices]) if {
	requests_share
	input.workload.devices > 1
	not input.object.metadata.annotations["gpu-fraction-num-devices"]
}

overrides.metadata.annotations["gpu-fraction-container-name"] := input.workload.container if {
	requests_share
	input.workload.container != containers.main_name
}

# KAI admits a pod with both a resource and these annotations, but never schedules it.
remove contains ["metadata", "annotations", key] if {
	scheduled_by_kai
	pools.grant.resource != ""
	some key in {"gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name", "mps"}
	input.object.metadata.annotations[key]
}

deny contains {
	"msg": sprintf("queue %s does not belong to project %s, whose queue in node pool %s is %s", [requested_queue, input.project.name, pools.preferred.name, queue_name]),
	"field": sprintf("metadata.labels[%s]", [key]),
	"fix": "leave the label out; it is set from the namespace's project",
} if {
	scheduled_by_kai
	key := kai.queue_label_key(pools.preferred)
	requested_queue := input.object.metadata.labels[key]
	not requested_queue in {kai.queue_name(input.project.name, pool) | some pool in input.nodePools}
}

deny contains {
	"msg": sprintf("the queue of project %s in node pool %s would be named %s, but KAI-Scheduler limits queue names to 63 characters", [input.project.name, pools.preferred.name, queue_name]),
	"fix": "ask the cluster administrators for a node pool with a shorter name",
} if {
	scheduled_by_kai
	count(queue_name) > 63
}

# Only KAI assigns a pod to a group. Otherwise another queue, or none, would count the
# pod.
deny contains {
	"msg": sprintf("only KAI-Scheduler writes the annotation %s", [key]),
	"field": sprintf("metadata.annotations[%s]", [key]),
	"fix": "remove it",
} if {
	some pool in input.nodePools
	pool.scheduler == "kai"
	some key in {"pod-group-name", "kai.scheduler/skip-podgrouper"}
	input.object.metadata.annotations[key]
}

# The quotas of a project and of its department in each pool.
objects contains object.union(
	kai_queues.queue(input.project, kai.queue_name(input.project.name, pool), pool),
	{"spec": {"parentQueue": kai.department_queue_name(input.project.department, pool)}},
) if {
	input.object.kind == "Project"
	not krm_adopted
	some pool in kai_pools
}

objects contains kai_queues.queue(input.department, kai.department_queue_name(input.department.name, pool), pool) if {
	input.object.kind == "Department"
	not krm_adopted
	some pool in kai_pools
}

# kai_pools are the pools of KAI-Scheduler, in their order.
kai_pools := [pool | some pool in input.nodePools; pool.scheduler == "kai"]

# krm_adopted: kai-resource-management creates the queues of a project instead of Sluice.
krm_adopted if input.parameters.krm == "adopt"

objects contains object.union(krm_object(input.project.name, "Project"), {"spec": {
	"parent": input.project.department,
	"namespace": input.project.namespace,
	"defaultNodePools": [kai.shard_name(pool) | some pool in kai_pools],
	"queues": [kai_queues.krm_queue(input.project, kai.queue_name(input.project.name, pool), pool) | some pool in kai_pools],
}}) if {
	input.object.kind == "Project"
	krm_adopted
	count(kai_pools) > 0
}

objects contains object.union(krm_object(input.department.name, "Department"), {"spec": {"queues": [
kai_queues.krm_queue(input.department, kai.department_queue_name(input.department.name, pool), pool) | some pool in kai_pools]}}) if {
	input.object.kind == "Department"
	krm_adopted
	count(kai_pools) > 0
}

krm_object(name, kind) := {"apiVersion": "kai.resources/v1alpha1", "kind": kind, "metadata": {"name": name}}

requires contains {"crd": name, "version": version, "fix": "install KAI-Scheduler 0.17 or later"} if {
	input.nodePool.scheduler == "kai"
	some name, version in {"queues.scheduling.run.ai": "v2", "podgroups.scheduling.run.ai": "v2alpha2"}
}

requires contains {"crd": name, "version": "v1alpha1", "fix": "install kai-resource-management, or set the parameter krm of policy schedulers.kai to own"} if {
	input.nodePool.scheduler == "kai"
	krm_adopted
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
	"setting": config_setting(["spec", "admission", "gpuSharing"]),
	"is": true,
	"optional": true,
	"fix": "set global.gpuSharing: true in the values of KAI-Scheduler's chart, or set the node pool's sharing to None or MIG",
} if {
	input.nodePool.scheduler == "kai"
	input.nodePool.sharing == "KAI"
}

# KAI's webhook gives pods with a share this runtime class, and the API server refuses
# pods with a class that does not exist. An empty name switches the class off. The second
# name is the first one's deprecated name, which counts if the first is not set.
requires contains {
	"setting": config_setting(["spec", "admission", "gpuFractionRuntimeClassName"]),
	"as": "runtimeClass",
	"default": object.get(input.nodePool, ["settings", "podRuntimeClass"], "nvidia"),
	"allowEmpty": true,
} if {
	input.nodePool.scheduler == "kai"
	input.nodePool.sharing == "KAI"
}

requires contains {
	"setting": config_setting(["spec", "admission", "gpuPodRuntimeClassName"]),
	"as": "podRuntimeClass",
	"default": "nvidia",
	"allowEmpty": true,
} if {
	input.nodePool.scheduler == "kai"
	input.nodePool.sharing == "KAI"
}

requires contains {
	"setting": {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "name": runtime_class, "path": ["handler"]},
	"fix": sprintf("install the RuntimeClass %s, which NVIDIA's GPU operator creates: KAI-Scheduler's webhook sets it on pods with a share of a GPU", [runtime_class]),
} if {
	input.nodePool.scheduler == "kai"
	input.nodePool.sharing == "KAI"
	runtime_class != ""
}

default runtime_class := "nvidia"

runtime_class := input.nodePool.settings.runtimeClass

# The API server calls webhooks in the order of their configurations' names. KAI's webhook
# only handles pods with its scheduler name, which Sluice's webhook sets.
requires contains {
	"setting": config_setting(["spec", "admission", "mutatingWebhookConfigurationName"]),
	"is": "zz-kai-admission",
	"optional": true,
	"fix": "set spec.admission.mutatingWebhookConfigurationName: zz-kai-admission in KAI-Scheduler's Config kai-config: its webhook, which prepares pods for a share, must be called after Sluice's",
} if {
	input.nodePool.scheduler == "kai"
	input.nodePool.sharing == "KAI"
}

requires contains {"setting": config_setting(["spec", "global", name]), "as": name, "default": value} if {
	input.nodePool.scheduler == "kai"
	some name, value in kai.default_settings
}

# KAI-Scheduler marks the pods that it preempts with the condition DisruptionTarget only if
# the scheduler of the shard has this argument. Without the mark, a Job counts a preempted
# pod as a failure.
requires contains {
	"setting": kai.marks_preempted_pods_setting(input.nodePool),
	"is": "true",
	"advisory": true,
	"fix": sprintf("set spec.args: {update-pod-eviction-condition: \"true\"} in the SchedulingShard whose spec.partitionLabelValue is %q: without it, a Job counts each pod that KAI-Scheduler preempts as a failure", [kai.partition(input.nodePool)]),
} if {
	input.nodePool.scheduler == "kai"
}

requires contains {
	"setting": kai.marks_preempted_pods_setting(input.nodePool),
	"as": kai.marks_preempted_pods_name,
	"default": "false",
	"advisory": true,
} if {
	input.nodePool.scheduler == "kai"
}

config_setting(path) := {"apiVersion": "kai.scheduler/v1", "kind": "Config", "name": "kai-config", "path": path}
