# What a GPU pod is given for what it asks, and what that is charged: the
# resource of a GPU, a slice or a replica, and the pool's currency on the main
# container.
package core.gpu

import data.sluice.lib.ask
import data.sluice.lib.containers
import data.sluice.lib.pools
import data.sluice.lib.refusals
import data.sluice.lib.words

overrides.spec[list] := wanted(list) if {
	some list in ["containers", "initContainers"]
	count(wanted(list)) > 0
}

# wanted are the containers of a list that get something.
wanted(list) := [{"name": container.it.name, "resources": {"limits": limits}} |
	some container in containers.each
	container.list == list
	limits := object.union(grant(container), charge(container))
	count(limits) > 0
]

# grant is the resource that a container is given, where it does not ask for it
# by that name already.
grant(container) := {pools.granted.resource: format_int(input.workload.devices, 10)} if {
	rewritten
	container.it.name == input.workload.container
} else := {}

# charge is what is counted of the whole pod: a pod's requests are the sum of its
# containers'. It is said once only.
charge(container) := {pools.first.currency: format_int(pools.charge, 10)} if {
	ask.gpu
	container.list == "containers"
	container.it.name == containers.main
} else := {}

rewritten if {
	ask.gpu
	pools.granted
	not pools.granted.resource in object.keys(input.workload.resources)
}

# Whatever else is said of GPUs would ask for a second kind of them.
remove contains ["spec", container.list, {"name": container.it.name}, "resources", kind, name] if {
	ask.gpu
	some container in containers.each
	some kind in ["limits", "requests"]
	some name, _ in container.it.resources[kind]
	containers.of_gpus(name)
	name != pools.granted.resource
}

# Nobody but this policy says what is charged.
remove contains ["spec", container.list, {"name": container.it.name}, "resources", kind, name] if {
	some container in containers.each
	some kind in ["limits", "requests"]
	some name, _ in container.it.resources[kind]
	startswith(name, "sluice.dev/gpu-milli")
	not name in object.keys(charge(container))
}

deny contains {"msg": refusals.msg, "fix": refusals.fix} if {
	ask.gpu
	pools.first
	not pools.granted
}

deny contains {
	"msg": sprintf("%d containers ask for GPUs by names that node pool %s does not have: %s", [
		count(containers.holders), pools.first.name, words.list(containers.holders),
	]),
	"fix": sprintf("ask for %s in each of them", [pools.granted.resource]),
} if {
	rewritten
	count(containers.holders) > 1
}

deny contains {
	"msg": "the pod of a DaemonSet cannot have GPUs: it would take one of every node, whoever waits for it",
	"fix": "use a Job, a Deployment or a StatefulSet",
} if {
	ask.gpu
	ask.of_daemon_set
}

# What a claim holds is not known here, and could not be charged. The parameter
# allowClaims is for clusters where claims are never of GPUs.
deny contains {
	"msg": "devices by resource claims are not counted by this version of Sluice",
	"field": "spec.resourceClaims",
	"fix": "ask for GPUs as nvidia.com/gpu in a container's limits, or by the annotation sluice.dev/gpu",
} if {
	claimed
	not input.parameters.allowClaims
}

claimed if count(input.workload.claims) > 0

claimed if count(input.workload.deviceClasses) > 0

warn contains sprintf("%s became %s in node pool %s; the pod counts as %s", [
	ask.said, pools.granted.name, pools.first.name, words.gpus(pools.charge),
]) if {
	rounded
}

rounded if {
	input.workload.form == "Share"
	pools.charge > input.workload.devices * words.milli(input.workload.share)
}

rounded if {
	input.workload.form == "Memory"
	pools.granted
}

rounded if {
	input.workload.form == "Whole"
	pools.granted.milli < 1000
}
