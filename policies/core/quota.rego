# Charges a GPU pod in a node pool, and keeps the pod on the nodes of that pool. It
# denies a pod that could never fit into the project's quota. A pod that only
# exceeds the free quota stays pending.
#
# Platform teams can replace the policies that grant resources, but not this one. It
# therefore charges what the pod requests after all changes.
package core.quota

import data.sluice.lib.ask
import data.sluice.lib.containers
import data.sluice.lib.held
import data.sluice.lib.pools
import data.sluice.lib.refusals
import data.sluice.lib.words

# Kubernetes adds up the requests of all containers, so only the main container
# carries the charge of the pod.
overrides.spec.containers := [{"name": containers.main, "resources": {"limits": charge}}] if charge

charge := {pools.first.currency: format_int(pools.charge, 10)} if ask.gpu

# Only this policy sets the charge.
remove contains ["spec", container.list, {"name": container.it.name}, "resources", kind, name] if {
	some container in containers.each
	some kind in ["limits", "requests"]
	some name, _ in container.it.resources[kind]
	startswith(name, "sluice.dev/gpu-milli")
	not charged(container, name)
}

charged(container, name) if {
	container.list == "containers"
	container.it.name == containers.main
	charge[name]
}

# The chosen pools differ in one label only, so no other pool matches.
nodes contains {"key": key, "operator": "In", "values": sort(values)} if {
	ask.gpu
	some key, _ in pools.first.nodeSelector
	values := {pool.nodeSelector[key] | some pool in pools.chosen}
}

# A request that no pool can grant cannot be charged.
deny contains complaint if some complaint in refusals.complaints

deny contains {
	"msg": sprintf("the pod counts as %s of node pool %s; project %s may have %s there", [
		words.gpus(pools.charge), pool.name, input.project.name, words.amount(words.milli(pool.limit)),
	]),
	"fix": "request less, or ask an administrator of the department for more",
} if {
	ask.gpu
	every one in pools.chosen {
		pools.charge > words.milli(one.limit)
	}
	some pool in pools.chosen
}

# A non-preemptible pod cannot exceed the guarantee, since its GPUs could not be
# reclaimed.
deny contains {
	"msg": sprintf("the pod counts as %s of node pool %s; pods of type %s cannot be preempted and must fit the guarantee of project %s, %s", [
		words.gpus(pools.charge), pool.name, input.workload.type,
		input.project.name, words.amount(words.milli(pool.guaranteed)),
	]),
	"fix": alternative,
} if {
	ask.gpu
	not ask.preemptible
	some fitting in pools.chosen
	pools.charge <= words.milli(fitting.limit)
	every one in pools.chosen {
		pools.charge > words.milli(one.guaranteed)
	}
	some pool in pools.chosen
}

alternative := "request less, or choose priorityClassName sluice-interactive-preemptible" if {
	input.workload.type == "interactive"
} else := "request less, or ask an administrator of the department for a larger guarantee"

# The devices of a claim are not known at admission and cannot be charged. The
# parameter is for clusters where claims never contain GPUs.
deny contains {
	"msg": "this version of Sluice does not count the devices of resource claims",
	"field": "spec.resourceClaims",
	"fix": "request GPUs as nvidia.com/gpu in a container's limits, or with the annotation sluice.dev/gpu",
} if {
	claimed
	not input.parameters.allowClaims
}

claimed if count(input.workload.claims) > 0

claimed if count(input.workload.deviceClasses) > 0

# The following rules check the changes of the other policies. They never deny a pod
# if all other policies are built in.

# made: the policies have already changed the pod. A user can forge this state; the
# rules then deny what the policies would otherwise correct.
made if {
	input.object.metadata.labels["sluice.dev/project"] == input.project.name
	containers.regular[0].resources.limits[pools.first.currency]
}

deny contains {
	"msg": sprintf("the pod has %s, which is %s of node pool %s, and would be counted as %s", [
		words.list([sprintf("%v %s", [amount, name]) | some name, amount in input.workload.resources]),
		words.gpus(held.milli), pools.first.name, words.gpus(pools.charge),
	]),
	"fix": "contact the cluster administrators: the policy that replaces core.gpu must not grant more than the pod is charged",
} if {
	ask.gpu
	made
	held.milli > pools.charge
}

# The ResourceQuota of the guarantee selects pods by priority class.
deny contains {
	"msg": sprintf("a pod of type %s must fit the guarantee, which does not count priority class %s", [input.workload.type, class]),
	"field": "spec.priorityClassName",
	"fix": sprintf("contact the cluster administrators: the policy that replaces core.priority must set %s", [concat(" or ", ask.counted_classes)]),
} if {
	ask.gpu
	made
	not ask.preemptible
	class := object.get(input.object.spec, "priorityClassName", "none")
	not class in ask.counted_classes
}
