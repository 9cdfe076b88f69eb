package privileges

violation[{"msg": msg}] {
	container := containers[_]
	not exempt(container)
	escalates(container)
	msg := sprintf("container <%v> must set securityContext.allowPrivilegeEscalation to false", [container.name])
}

violation[{"msg": msg}] {
	container := containers[_]
	not exempt(container)
	container.securityContext.privileged
	msg := sprintf("container <%v> must not be privileged", [container.name])
}

escalates(container) {
	not container.securityContext.allowPrivilegeEscalation == false
}

exempt(container) {
	startswith(container.image, input.parameters.exemptImages[_])
}

containers[container] {
	container := input.review.object.spec.containers[_]
}

containers[container] {
	container := input.review.object.spec.initContainers[_]
}
