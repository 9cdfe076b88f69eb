# METADATA
# title: Image digests
# description: >-
#   Refuses images without a digest (name@sha256:...). A tag can move to another image while a workload runs, so that
#   its pods differ and a result cannot be reproduced.
package image_digests

import data.sluice.lib.containers

deny contains {
	"msg": sprintf("container %s: image %s has no digest", [container.spec.name, container.spec.image]),
	"field": sprintf("spec.%s", [container.list]),
	"fix": "append the digest that crane digest or docker inspect shows, such as image:1@sha256:...",
} if {
	some container in containers.entries
	not regex.match(`@sha256:[0-9a-f]{64}$`, container.spec.image)
}
