# METADATA
# title: Sidecar
# description: >-
#   Adds a sidecar to pods with GPUs: an init container with restartPolicy Always, which starts before the pod's own containers and ends
#   after them, so that a Job still completes. A container of the author with its name is replaced.
package sidecar

import data.sluice.lib.request

overrides := {"spec": {"initContainers": [{
	"name": input.parameters.name,
	"image": input.parameters.image,
	"restartPolicy": "Always",
	"resources": {"limits": amounts, "requests": amounts},
}]}} if {
	request.includes_gpu
}

amounts := {"cpu": input.parameters.cpu, "memory": input.parameters.memory}
