# Pods, queues and quotas for Kueue. Kueue holds back a pod by a scheduling gate and a
# Job by suspending it; kube-scheduler chooses the node. The quotas form a tree: the
# cohort sluice.root, below it a cohort of each department, and below that a
# ClusterQueue of each project.
package schedulers.kueue

import data.sluice.lib.ask
import data.sluice.lib.pools
import data.sluice.lib.quotas
import data.sluice.lib.words

overrides.spec.schedulerName := "default-scheduler" if queued

queued if {
	ask.gpu
	pools.first.scheduler == "kueue"
}

# In a pod group, Kueue charges all pods with the same hash like the first of them. It
# computes the hash before the charge of a share is known, and keeps an existing hash.
# This rule adds the charge to the hash.
overrides.metadata.annotations["kueue.x-k8s.io/role-hash"] := sprintf("%s-%d", [split(hash, "-")[0], pools.charge]) if {
	queued
	input.object.metadata.labels["kueue.x-k8s.io/pod-group-name"]
	hash := input.object.metadata.annotations["kueue.x-k8s.io/role-hash"]
}

# Each project has one queue. Kueue sets it if the author names none.
deny contains {
	"msg": sprintf("queue %s is not that of project %s, which is %s", [queue, input.project.name, own_queue]),
	"field": "metadata.labels[kueue.x-k8s.io/queue-name]",
	"fix": "leave the label out: Kueue sets it",
} if {
	count(served) > 0
	queue := input.object.metadata.labels["kueue.x-k8s.io/queue-name"]
	queue != own_queue
}

own_queue := "default"

# Without the gate, the pod would run before its turn and outside Kueue's preemption.
deny contains {
	"msg": "Kueue's webhook did not process the pod: it lacks the scheduling gate kueue.x-k8s.io/admission, and would run outside its quota",
	"field": "spec.schedulingGates",
	"fix": "contact the cluster administrators: Kueue must manage the pods of all projects (integrations.frameworks with pod, managedJobsNamespaceSelector)",
} if {
	queued
	final
	not gated
	not held_by_its_owner
}

# final: all mutating webhooks have handled the pod. The annotation of the decisions
# exists from the first mutation on; a user who forges it is only denied earlier.
final if {
	input.review.kind.kind == "Pod"
	input.object.metadata.annotations["sluice.dev/decisions"]
}

gated if {
	some gate in input.object.spec.schedulingGates
	gate.name == "kueue.x-k8s.io/admission"
}

# held_by_its_owner: Kueue suspends the pod's owner or the owner's workload instead. An
# admission policy validates the owner references of pods.
held_by_its_owner if {"group": input.workload.owner.group, "kind": input.workload.owner.kind} in suspended

suspended := {{"group": "batch", "kind": "Job"}, {"group": "ray.io", "kind": "RayCluster"}} | {{"group": "kubeflow.org", "kind": kind} |
	some kind in ["JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"]
}

# served are the pools that Kueue serves, in their order.
served := [pool | some pool in input.nodePools; pool.scheduler == "kueue"]

# The ClusterQueue of a project. The two ResourceQuotas remain, since Kueue would lend
# GPUs to non-preemptible pods.
objects contains kueue("ClusterQueue", input.project.name, {
	"cohortName": input.project.department,
	"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": input.project.namespace}},
	"resourceGroups": groups([flavor(pool, pool.guaranteed, pool.limit - pool.guaranteed) | some pool in served]),
	"fairSharing": weight,
	"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
}) if {
	of_project
}

objects contains object.union(
	kueue("LocalQueue", own_queue, {"clusterQueue": input.project.name}),
	{"metadata": {"namespace": input.project.namespace}},
) if {
	of_project
}

objects contains quota if {
	of_project
	limit := sum([pool.limit | some pool in served])
	guaranteed := sum([pool.guaranteed | some pool in served])
	some quota in quotas.both("sluice-kueue", currency, limit, guaranteed)
}

of_project if {
	input.object.kind == "Project"
	count(served) > 0
}

# The cohort of a department: the guarantee beyond those of its projects, which all of
# them can use, and the limit of all projects together.
objects contains kueue("Cohort", input.department.name, {
	"parentName": root,
	"resourceGroups": groups([flavor(pool, pool.guaranteed - pool.promised, pool.limit - max([pool.guaranteed, pool.promised])) | some pool in served]),
	"fairSharing": weight,
}) if {
	input.object.kind == "Department"
	count(served) > 0
}

# The flavor of a node pool, and the GPUs that are guaranteed to no department. They are
# in a ClusterQueue without a LocalQueue, which lends them.
objects contains kueue("ResourceFlavor", input.nodePool.name, {"nodeLabels": input.nodePool.nodeSelector}) if of_pool

objects contains kueue("ClusterQueue", sprintf("nodepool.%s", [input.nodePool.name]), {
	"cohortName": root,
	"resourceGroups": groups([flavor(input.nodePool, input.nodePool.gpus - input.nodePool.promised, 0)]),
}) if {
	of_pool
}

of_pool if {
	input.object.kind == "NodePool"
	input.nodePool.scheduler == "kueue"
}

# root is the cohort of all departments, which exists implicitly. A department cannot
# have this name, since it has a dot: a cohort that is its own parent would stop Kueue.
root := "sluice.root"

currency := "sluice.dev/gpu-milli"

# Kueue has one weight for all pools: that of the first one.
weight := {"weight": format_int(served[0].weight, 10)}

kueue(kind, name, spec) := {
	"apiVersion": "kueue.x-k8s.io/v1beta2",
	"kind": kind,
	"metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "sluice"}},
	"spec": spec,
}

groups(flavors) := [{"coveredResources": [currency], "flavors": flavors}]

flavor(pool, nominal, borrowed) := {"name": pool.name, "resources": [{
	"name": currency,
	"nominalQuota": quantity(nominal),
	"borrowingLimit": quantity(borrowed),
}]}

# quantity is in thousandths and in Kueue's canonical form, so that neither Kueue nor
# lifecycle rewrites it.
quantity(gpus) := shortest(max([0, words.milli(gpus)]))

shortest(amount) := format_int(amount, 10) if amount % 1000 > 0

else := "0" if amount == 0

else := sprintf("%dM", [floor(amount / 1000000)]) if amount % 1000000 == 0

else := sprintf("%dk", [floor(amount / 1000)])

requires contains {
	"crd": sprintf("%s.kueue.x-k8s.io", [name]),
	"version": "v1beta2",
	"fix": "install Kueue 0.15 or later",
} if {
	of_pool
	some name in ["clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloads"]
}

# The requirement is optional, since the configuration can be in another ConfigMap. A
# list must contain the given elements.
requires contains object.union(object.filter(switch, ["is"]), {
	"setting": {
		"apiVersion": "v1",
		"kind": "ConfigMap",
		"namespace": "kueue-system",
		"name": "kueue-manager-config",
		"path": array.concat(["data", "controller_manager_config.yaml"], switch.path),
	},
	"optional": true,
	"fix": sprintf("in Kueue's configuration %s, and restart Kueue", [switch.fix]),
}) if {
	of_pool
	some switch in switches
}

switches := [
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
		"is": ["cpu", "memory", "nvidia.com/", "sluice.dev/gpu-milli."],
		"fix": "add cpu, memory, nvidia.com/ and sluice.dev/gpu-milli. (with the dot) to resources.excludeResourcePrefixes, since Kueue must count GPUs only as sluice.dev/gpu-milli",
	},
	{
		"path": ["integrations", "frameworks"],
		"is": ["batch/job", "pod"],
		"fix": "add batch/job and pod to integrations.frameworks",
	},
]
