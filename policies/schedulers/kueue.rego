# Pods, queues and quotas for Kueue. Kueue holds back a pod by a scheduling gate and a
# Job by suspending it; kube-scheduler chooses the node. The quotas form a tree: the
# cohort sluice.root, below it a cohort of each department, and below that a
# ClusterQueue of each project.
package schedulers.kueue

import data.sluice.lib.kueue
import data.sluice.lib.pools
import data.sluice.lib.quotas
import data.sluice.lib.request

overrides.spec.schedulerName := "default-scheduler" if scheduled_by_kueue

scheduled_by_kueue if {
	request.includes_gpu
	pools.preferred.scheduler == "kueue"
}

# In a pod group, Kueue charges all pods with the same hash like the first of them. It
# computes the hash before the charge of a share is known, and keeps an existing hash.
# This rule adds the charge to the hash.
overrides.metadata.annotations["kueue.x-k8s.io/role-hash"] := sprintf("%s-%d", [split(hash, "-")[0], pools.charge]) if {
	scheduled_by_kueue
	input.object.metadata.labels["kueue.x-k8s.io/pod-group-name"]
	hash := input.object.metadata.annotations["kueue.x-k8s.io/role-hash"]
}

# Each project has one queue. Kueue sets it if the author names none.
deny contains {
	"msg": sprintf("queue %s does not belong to project %s, whose queue is %s", [queue, input.project.name, local_queue]),
	"field": "metadata.labels[kueue.x-k8s.io/queue-name]",
	"fix": "leave the label out: Kueue sets it",
} if {
	count(kueue_pools) > 0
	queue := input.object.metadata.labels["kueue.x-k8s.io/queue-name"]
	queue != local_queue
}

# Kueue would order and preempt by this class, whatever the workload type.
deny contains {
	"msg": "the priority in the queue follows from the workload type, not from a class of Kueue",
	"field": "metadata.labels[kueue.x-k8s.io/priority-class]",
	"fix": "remove the label, and set sluice.dev/workload-type",
} if {
	count(kueue_pools) > 0
	input.object.metadata.labels["kueue.x-k8s.io/priority-class"]
}

local_queue := "default"

# Without the gate, the pod would run before Kueue admits it, and Kueue could not preempt
# it.
deny contains {
	"msg": "Kueue's webhook did not process the pod: it lacks the scheduling gate kueue.x-k8s.io/admission, and would run outside its quota",
	"field": "spec.schedulingGates",
	"fix": "contact the cluster administrators: Kueue must manage the pods of all projects (integrations.frameworks with pod, managedJobsNamespaceSelector)",
} if {
	scheduled_by_kueue
	fully_mutated
	not has_scheduling_gate
	not kueue.suspended_by_owner
}

# fully_mutated: all mutating webhooks have handled the pod. This annotation exists from
# the first mutation on, and users cannot set it.
fully_mutated if {
	input.review.kind.kind == "Pod"
	input.object.metadata.annotations["sluice.dev/evaluated-under"]
}

has_scheduling_gate if {
	some gate in input.object.spec.schedulingGates
	gate.name == "kueue.x-k8s.io/admission"
}

# kueue_pools are the pools of Kueue, in their order.
kueue_pools := [pool | some pool in input.nodePools; pool.scheduler == "kueue"]

# The ClusterQueue of a project. Its ResourceQuota counts GPUs, too, since Kueue would lend
# them to pods that cannot be preempted.
objects contains kueue_object("ClusterQueue", input.project.name, {
	"cohortName": input.project.department,
	"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": input.project.namespace}},
	"resourceGroups": resource_groups([flavor_quotas(pool, pool.guaranteed, pool.limit - pool.guaranteed) | some pool in kueue_pools]),
	"fairSharing": fair_sharing,
	"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
}) if {
	for_kueue_project
}

# In a closed project nothing that waits is admitted, and what was admitted stays.
objects contains object.union(
	kueue_object("LocalQueue", local_queue, {"clusterQueue": input.project.name, "stopPolicy": stop_policy}),
	{"metadata": {"namespace": input.project.namespace}},
) if {
	for_kueue_project
}

# The limit is one for all pools, among which Kueue chooses. The guarantee holds in each: a
# pod that cannot be preempted is held to one pool.
objects contains quotas.resource_quota(object.union_n([quotas.gpu_limits(pool, limit, pool.guaranteed) | some pool in kueue_pools])) if {
	for_kueue_project
	limit := sum([pool.limit | some pool in kueue_pools])
}

default stop_policy := "None"

stop_policy := "Hold" if input.project.closed

for_kueue_project if {
	input.object.kind == "Project"
	count(kueue_pools) > 0
}

# The cohort of a department: the guarantee beyond those of its projects, which all of
# them can use, and the limit of all projects together.
objects contains kueue_object("Cohort", input.department.name, {
	"parentName": root_cohort,
	"resourceGroups": resource_groups([flavor_quotas(pool, pool.guaranteed - pool.subscribed, pool.limit - max([pool.guaranteed, pool.subscribed])) | some pool in kueue_pools]),
	"fairSharing": fair_sharing,
}) if {
	input.object.kind == "Department"
	count(kueue_pools) > 0
}

# The flavor of a node pool, and the GPUs that are guaranteed to no department. They are
# in a ClusterQueue without a LocalQueue, which lends them.
objects contains kueue_object("ResourceFlavor", input.nodePool.name, {"nodeLabels": input.nodePool.nodeSelector}) if for_kueue_pool

objects contains kueue_object("ClusterQueue", sprintf("nodepool.%s", [input.nodePool.name]), {
	"cohortName": root_cohort,
	"resourceGroups": resource_groups([flavor_quotas(input.nodePool, input.nodePool.gpus - input.nodePool.subscribed, 0)]),
}) if {
	for_kueue_pool
}

for_kueue_pool if {
	input.object.kind == "NodePool"
	input.nodePool.scheduler == "kueue"
}

# root_cohort is the cohort of all departments, which exists implicitly. Its name has a
# dot, so no department can have it: a cohort that is its own parent would stop Kueue.
root_cohort := "sluice.root"

quota_resource := "sluice.dev/gpu-milli"

# fair_sharing is the weight of a queue or cohort. Kueue has one weight for all pools:
# that of the first pool.
fair_sharing := {"weight": format_int(kueue_pools[0].weight, 10)}

kueue_object(kind, name, spec) := {
	"apiVersion": "kueue.x-k8s.io/v1beta2",
	"kind": kind,
	"metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "sluice"}},
	"spec": spec,
}

resource_groups(flavors) := [{"coveredResources": [quota_resource], "flavors": flavors}]

flavor_quotas(pool, nominal, borrowed) := {"name": pool.name, "resources": [{
	"name": quota_resource,
	"nominalQuota": quantity(nominal),
	"borrowingLimit": quantity(borrowed),
}]}

# quantity returns GPUs in thousandths and in Kueue's canonical form, so that neither
# Kueue nor lifecycle rewrites it.
quantity(gpus) := canonical(max([0, quotas.milli(gpus)]))

canonical(amount) := format_int(amount, 10) if amount % 1000 > 0

else := "0" if amount == 0

else := sprintf("%dM", [floor(amount / 1000000)]) if amount % 1000000 == 0

else := sprintf("%dk", [floor(amount / 1000)])

requires contains {
	"crd": sprintf("%s.kueue.x-k8s.io", [name]),
	"version": "v1beta2",
	"fix": "install Kueue 0.15 or later",
} if {
	for_kueue_pool
	some name in ["clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloads"]
}

# The requirement is optional, since the configuration can be in another ConfigMap. A
# list must contain the given elements.
requires contains object.union(object.filter(required, ["is"]), {
	"setting": {
		"apiVersion": "v1",
		"kind": "ConfigMap",
		"namespace": "kueue-system",
		"name": "kueue-manager-config",
		"path": array.concat(["data", "controller_manager_config.yaml"], required.path),
	},
	"optional": true,
	"fix": sprintf("in Kueue's configuration %s, and restart Kueue", [required.fix]),
}) if {
	for_kueue_pool
	some required in required_settings
}

# named_gpus are the GPUs of the pool's own names that nvidia.com/ does not cover.
named_gpus := [named.name | some named in input.nodePool.resources; not startswith(named.name, "nvidia.com/")]

required_settings := [
	{
		"path": ["fairSharing"],
		"fix": "set fairSharing, which divides idle GPUs",
	},
	{
		"path": ["managedJobsNamespaceSelector"],
		"is": {"matchExpressions": [{"key": "sluice.dev/project", "operator": "Exists"}]},
		"fix": "set managedJobsNamespaceSelector to the namespaces with the label sluice.dev/project",
	},
	{
		"path": ["resources", "excludeResourcePrefixes"],
		"is": array.concat(["cpu", "memory", "nvidia.com/", "sluice.dev/gpu-milli.", "sluice.dev/guaranteed-milli"], named_gpus),
		"fix": sprintf("add cpu, memory, nvidia.com/, sluice.dev/gpu-milli. (with the dot) and sluice.dev/guaranteed-milli%s to resources.excludeResourcePrefixes, since Kueue must count GPUs only as sluice.dev/gpu-milli", [concat("", [sprintf(", %s", [name]) | some name in named_gpus])]),
	},
	{
		"path": ["integrations", "frameworks"],
		"is": ["batch/job", "pod"],
		"fix": "add batch/job and pod to integrations.frameworks",
	},
]
