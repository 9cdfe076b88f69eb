package allowedregistries

violation[{"msg": msg}] {
	container := input.review.object.spec.containers[_]
	not trusted(container.image)
	msg := sprintf("container <%v> has the image <%v>, which is from none of %v", [container.name, container.image, input.parameters.registries])
}

trusted(image) {
	startswith(image, input.parameters.registries[_])
}
