package no_latest

deny contains {
	"msg": sprintf("%s: the image has no fixed version", [container.image]),
	"fix": "name a version instead of latest",
} if {
	some container in input.object.spec.containers
	endswith(container.image, ":latest")
}

warn contains sprintf("%s: the registry is not one of ours", [container.image]) if {
	some container in input.object.spec.containers
	not own_registry(container.image)
}

own_registry(image) if {
	some registry in input.parameters.registries
	startswith(image, concat("", [registry, "/"]))
}

defaults := {"metadata": {"labels": {"team": "unknown"}}}
