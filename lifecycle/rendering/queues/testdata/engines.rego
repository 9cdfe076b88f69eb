package engines

queue(kind, name, spec) := {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}

objects contains queue("ResourceFlavor", input.nodePool.name, {"nodeLabels": input.nodePool.nodeSelector}) if {
	input.object.kind == "NodePool"
	input.nodePool.scheduler == "kueue"
}

objects contains queue("Cohort", input.department.name, {"parentName": "sluice", "nominal": sprintf("%v", [sum([pool.subscribed | some pool in queued])])}) if {
	input.object.kind == "Department"
	count(queued) > 0
}

objects contains queue("ClusterQueue", input.project.name, {"cohortName": input.department.name}) if {
	input.object.kind == "Project"
	count(queued) > 0
}

objects contains queue("LocalQueue", "default", {"clusterQueue": input.project.name}) if {
	input.object.kind == "Project"
	count(queued) > 0
}

objects contains {
	"apiVersion": "v1",
	"kind": "ResourceQuota",
	"metadata": {"name": "sluice"},
	"spec": {"hard": {sprintf("requests.%s", [pool.quotaResource]): sprintf("%v", [pool.limit])}},
} if {
	input.object.kind == "Project"
	some pool in input.nodePools
}

queued := [pool | some pool in input.nodePools; pool.scheduler == "kueue"]
