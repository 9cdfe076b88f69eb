package gpulimit

violation[{"msg": msg, "details": {"gpus": total}}] {
	total := sum([gpus(container) | container := input.review.object.spec.containers[_]])
	total > input.parameters.max
	msg := sprintf("the pod requests %v GPUs; at most %v are allowed", [total, input.parameters.max])
}

gpus(container) = count {
	count := to_number(container.resources.limits["nvidia.com/gpu"])
}

gpus(container) = 0 {
	not container.resources.limits["nvidia.com/gpu"]
}
