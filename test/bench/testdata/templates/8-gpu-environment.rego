package gpuenvironment

violation[{"msg": msg}] {
	container := input.review.object.spec.containers[_]
	variable := container.env[_]
	forbidden[variable.name]
	msg := sprintf("container <%v> sets %v, with which it would see GPUs that it was not given", [container.name, variable.name])
}

forbidden = {name | name := input.parameters.variables[_]}
