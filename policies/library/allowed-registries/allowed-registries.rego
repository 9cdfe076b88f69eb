# METADATA
# title: Allowed registries
# description: >-
#   Refuses containers and init containers whose image is of no allowed registry or repository. The name is completed
#   as container runtimes do: busybox is docker.io/library/busybox. Members see the registries in sluice whoami.
# custom:
#   misses: an ephemeral container, whose image only the API server's own policies see
package allowed_registries

import data.sluice.lib.containers

deny contains {
	"msg": sprintf("container %s: image %s is of no allowed registry", [container.spec.name, container.spec.image]),
	"field": sprintf("spec.%s", [container.list]),
	"fix": sprintf("use an image of %s", [concat(", ", input.parameters.registries)]),
} if {
	some container in containers.entries
	not allowed(full_name(container.spec.image))
}

# What sluice whoami shows to the members of each project.
objects contains {
	"apiVersion": "sluice.dev/v1alpha1",
	"kind": "ProjectParameters",
	"metadata": {"name": "allowed-registries"},
	"spec": {"images": input.parameters.registries},
} if {
	input.object.kind == "Project"
}

allowed(image) if {
	some registry in input.parameters.registries
	startswith(image, concat("", [trim_suffix(registry, "/"), "/"]))
}

# full_name completes the name of an image. Its first part is a registry if it has a dot or a port, or is localhost.
full_name(image) := sprintf("docker.io/library/%s", [image]) if not contains(image, "/")

else := image if is_registry(split(image, "/")[0])

else := sprintf("docker.io/%s", [image])

is_registry("localhost")

is_registry(part) if contains(part, ".")

is_registry(part) if contains(part, ":")
