# Replaces the GPU request of a pod by a resource of its node pool: a GPU, a MIG
# slice or a replica. core.quota charges the resource.
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

# rewritten: the pod does not request the granted resource by its name.
rewritten if {
	ask.gpu
	pools.granted.resource != "" # the scheduler grants a share by an annotation
	not pools.granted.resource in object.keys(input.workload.resources)
}

# Any other GPU resource would request additional GPUs of another kind.
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
