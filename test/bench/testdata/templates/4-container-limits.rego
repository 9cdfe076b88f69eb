package containerlimits

violation[{"msg": msg}] {
	container := input.review.object.spec.containers[_]
	not container.resources.limits.memory
	msg := sprintf("container <%v> has no memory limit", [container.name])
}

violation[{"msg": msg}] {
	container := input.review.object.spec.containers[_]
	memory := bytes(container.resources.limits.memory)
	maximum := bytes(input.parameters.memory)
	memory > maximum
	msg := sprintf("container <%v> may use %v of memory; at most %v are allowed", [container.name, container.resources.limits.memory, input.parameters.memory])
}

violation[{"msg": msg}] {
	container := input.review.object.spec.containers[_]
	cpu := millicores(container.resources.limits.cpu)
	cpu > millicores(input.parameters.cpu)
	msg := sprintf("container <%v> may use %v CPUs; at most %v are allowed", [container.name, container.resources.limits.cpu, input.parameters.cpu])
}

millicores(quantity) = n {
	endswith(quantity, "m")
	n := to_number(trim_suffix(quantity, "m"))
}

millicores(quantity) = n {
	not endswith(quantity, "m")
	n := to_number(quantity) * 1000
}

factor = {"": 1, "k": 1000, "M": 1000000, "G": 1000000000, "Ki": 1024, "Mi": 1048576, "Gi": 1073741824, "Ti": 1099511627776}

bytes(quantity) = n {
	regex.match("^[0-9]+(k|M|G|Ki|Mi|Gi|Ti)?$", quantity)
	suffix := trim_left(quantity, "0123456789")
	n := to_number(trim_suffix(quantity, suffix)) * factor[suffix]
}
