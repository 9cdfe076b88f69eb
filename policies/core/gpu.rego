# What a GPU pod is given for what it asks: the resource of a GPU, a slice or a
# replica. What that is charged, core.quota says.
package core.gpu

import data.sluice.lib.ask
import data.sluice.lib.containers
import data.sluice.lib.pools
import data.sluice.lib.words

overrides.spec[list] := given if {
	rewritten
	some list in ["containers", "initContainers"]
	given := [{"name": container.it.name, "resources": {"limits": {pools.granted.resource: format_int(input.workload.devices, 10)}}} |
		some container in containers.each
		container.list == list
		container.it.name == input.workload.container
	]
	count(given) > 0
}

# rewritten: the pod does not ask by the name of what it is given.
rewritten if {
	ask.gpu
	pools.granted.resource != "" # a share that the scheduler gives by an annotation
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

deny contains {
	"msg": sprintf("%d containers request GPUs by resources that node pool %s does not have: %s", [
		count(containers.holders), pools.first.name, words.list(containers.holders),
	]),
	"fix": sprintf("request %s in each of them", [pools.granted.resource]),
} if {
	rewritten
	count(containers.holders) > 1
}

deny contains {
	"msg": "the pod of a DaemonSet cannot have GPUs: it would occupy a GPU of every node, regardless of the queue",
	"fix": "use a Job, a Deployment or a StatefulSet",
} if {
	ask.gpu
	ask.of_daemon_set
}

warn contains sprintf("%s became %s in node pool %s; the pod counts as %s", [
	ask.said, pools.given, pools.first.name, words.gpus(pools.charge),
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
