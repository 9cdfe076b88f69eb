# Charges a GPU pod in a node pool, and keeps the pod on the nodes of that pool. It
# denies a pod that could never fit into the project's quota. A pod that only
# exceeds the free quota stays pending.
#
# Platform teams can replace the policies that grant resources, but not this one. It
# therefore charges what the pod requests after all changes.
package core.quota

import data.sluice.lib.containers
import data.sluice.lib.denials
import data.sluice.lib.format
import data.sluice.lib.gpuresources
import data.sluice.lib.pools
import data.sluice.lib.quotas
import data.sluice.lib.request

# Kubernetes adds up the requests of all containers, so only the main container
# carries the charge of the pod.
overrides.spec.containers := [{"name": containers.main_name, "resources": {"limits": charge_limits}}] if charge_limits

# charge_limits are the limits that charge the pod.
charge_limits := {name: format_int(pools.charge, 10) | some name in charged_resources} if request.includes_gpu

# A pod that cannot be preempted counts in the guarantee, too.
charged_resources contains pools.preferred.quotaResource

charged_resources contains pools.preferred.guaranteedResource if not request.preemptible

# Only this policy sets the charge.
remove contains ["spec", container.list, {"name": container.spec.name}, "resources", kind, name] if {
	some container in containers.entries
	some kind in ["limits", "requests"]
	some name, _ in container.spec.resources[kind]
	quotas.is_charge(name)
	not is_own_charge(container, name)
}

# is_own_charge: this policy sets the resource of the container as the charge.
is_own_charge(container, name) if {
	container.list == "containers"
	container.spec.name == containers.main_name
	charge_limits[name]
}

# The selected pools differ in one label only, so no other pool matches.
nodes contains {"key": key, "operator": "In", "values": sort(values)} if {
	request.includes_gpu
	some key, _ in pools.preferred.nodeSelector
	values := {pool.nodeSelector[key] | some pool in pools.selected}
}

# Until a quota counts the pool, nothing would limit the pod there.
deny contains {
	"msg": sprintf("the GPU quota of project %s is not applied yet in node pool %s", [input.project.name, pool.name]),
	"fix": "try again in a moment; if the error persists, ask the cluster administrators to check the project's conditions",
} if {
	request.includes_gpu
	not input.project.closed
	some pool in pools.selected
	not pool.quotaApplied
}

# A request that no pool can grant cannot be charged.
deny contains denial if some denial in denials.pool_denials

deny contains {
	"msg": sprintf("the pod counts as %s of node pool %s; project %s may have %s there", [
		format.gpus(pools.charge), pool.name, input.project.name, format.gpus_or_none(quotas.milli(pool.limit)),
	]),
	"fix": "request less, or ask an administrator of the department for more",
} if {
	request.includes_gpu
	not within_limit
	some pool in pools.selected
}

# within_limit: the pod fits the project's limit of a selected pool.
within_limit if {
	some pool in pools.selected
	pools.charge <= quotas.milli(pool.limit)
}

# A non-preemptible pod cannot exceed the guarantee, since its GPUs could not be
# reclaimed.
deny contains {
	"msg": sprintf("the pod counts as %s of node pool %s; pods of type %s cannot be preempted and must fit the guarantee of project %s, %s", [
		format.gpus(pools.charge), pool.name, input.workload.type,
		input.project.name, format.gpus_or_none(quotas.milli(pool.guaranteed)),
	]),
	"fix": guarantee_fix,
} if {
	request.includes_gpu
	not request.preemptible
	within_limit
	not within_guarantee
	some pool in pools.selected
}

# within_guarantee: the pod fits the project's guarantee of a selected pool.
within_guarantee if {
	some pool in pools.selected
	pools.charge <= quotas.milli(pool.guaranteed)
}

# guarantee_fix is the fix for a pod that exceeds the guarantee.
guarantee_fix := "request less, or choose priorityClassName sluice-interactive-preemptible" if {
	input.workload.type == "interactive"
} else := "request less, or ask an administrator of the department for a larger guarantee"

# The devices of a claim are not known at admission and cannot be charged. The
# parameter is for clusters where claims never contain GPUs.
deny contains {
	"msg": "this version of Sluice does not count the devices of resource claims",
	"field": "spec.resourceClaims",
	"fix": "request GPUs as nvidia.com/gpu in a container's limits, or with the annotation sluice.dev/gpu",
} if {
	count(input.workload.claims) > 0
	not input.parameters.allowClaims
}

# An extended resource can request the devices of a DeviceClass without a claim.
deny contains {
	"msg": sprintf("this version of Sluice does not count the devices of DeviceClass %s", [class]),
	"field": sprintf("spec.containers[*].resources.limits[deviceclass.resource.kubernetes.io/%s]", [class]),
	"fix": "request GPUs as nvidia.com/gpu in a container's limits, or with the annotation sluice.dev/gpu",
} if {
	some class, _ in input.workload.deviceClasses
	not input.parameters.allowClaims
}

# A device plugin can offer GPUs under any name. What the nodes of a pool offer and no list
# knows can be a GPU, which no quota would count.
deny contains {
	"msg": sprintf("nodes of node pool %s offer %s, and no list knows whether it is a GPU: it would be counted by no quota", [pool, name]),
	"field": sprintf("spec.containers[*].resources.limits[%s]", [name]),
	"fix": sprintf("request GPUs as nvidia.com/gpu, or ask the cluster administrators to list it: %s", [lists]),
} if {
	some name in input.workload.otherResources
	pool := input.project.unlistedResources[name]
}

deny contains unoffered if {
	input.parameters.unlistedResources == "Deny"
	some unoffered in unoffered_resources
}

warn contains unoffered if {
	input.parameters.unlistedResources != "Deny"
	some unoffered in unoffered_resources
}

# unoffered_resources are the findings about resources that no list knows and that no node
# of a pool offers.
unoffered_resources contains {
	"msg": sprintf("no node of a node pool offers %s, and no list knows it", [name]),
	"field": sprintf("spec.containers[*].resources.limits[%s]", [name]),
	"fix": sprintf("remove it, or ask the cluster administrators to list it: %s", [lists]),
} if {
	some name in input.workload.otherResources
	not input.project.unlistedResources[name]
}

# lists are where administrators list a resource.
lists := "in spec.resources of the NodePool if it is a GPU, else in nonGPUResources of the AdmissionParameters"

# The following rules check the changes of the other policies. They never deny a pod
# if all other policies are built in.

# mutated: the policies have already changed the pod. A user can forge this state; the
# rules then deny what the policies would otherwise correct.
mutated if {
	input.object.metadata.labels["sluice.dev/project"] == input.project.name
	containers.regular[0].resources.limits[pools.preferred.quotaResource]
}

deny contains {
	"msg": sprintf("the pod has %s, which is %s of node pool %s, and would be counted as %s", [
		format.list([sprintf("%v %s", [amount, name]) | some name, amount in input.workload.resources]),
		format.gpus(gpuresources.milli), pools.preferred.name, format.gpus(pools.charge),
	]),
	"fix": "contact the cluster administrators: the policy that replaces core.gpu must not grant more than the pod is charged",
} if {
	request.includes_gpu
	mutated
	gpuresources.milli > pools.charge
}
