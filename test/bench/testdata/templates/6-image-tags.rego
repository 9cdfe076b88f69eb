package imagetags

violation[{"msg": msg}] {
	container := input.review.object.spec.containers[_]
	tag := input.parameters.tags[_]
	endswith(container.image, concat(":", ["", tag]))
	msg := sprintf("container <%v> uses the tag <%v>; use the tag of a version", [container.name, tag])
}

violation[{"msg": msg}] {
	container := input.review.object.spec.containers[_]
	not regex.match(":[^/]+$", container.image)
	msg := sprintf("container <%v> has an image without a tag: <%v>", [container.name, container.image])
}
