package gpuenvironment

violation[{"msg": msg}] {
	container := input.review.object.spec.containers[_]
	variable := container.env[_]
	forbidden[variable.name]
	msg := sprintf("container <%v> sets %v, which gives access to GPUs that it did not request", [container.name, variable.name])
}

forbidden = {name | name := input.parameters.variables[_]}
