# The containers and init containers of a pod, and those with GPUs.
package sluice.lib.containers

# each has all containers, with the list (containers or initContainers) and the
# index in it.
each := array.concat(listed("containers", regular), listed("initContainers", initial))

default regular := []

regular := input.object.spec.containers

default initial := []

initial := input.object.spec.initContainers

listed(list, containers) := [{"list": list, "place": place, "it": it} | some place, it in containers]

# main is the name of the first container, which has the charge of the pod.
main := regular[0].name

# has_gpu: the container has a GPU, or will get it.
has_gpu(container) if container.name == input.workload.container

has_gpu(container) if count(counted(container)) > 0

# holders are the containers that request a GPU by a resource.
holders := [container.it.name | some container in each; count(counted(container.it)) > 0]

# counted are the GPU resources that a container requests.
counted(container) := {name |
	some name, amount in container.resources.limits
	not amount in {0, "0"}
	name in object.keys(input.workload.resources)
}

# of_gpus: a resource counts GPUs, shares of GPUs or GPU memory.
of_gpus(name) if name in object.keys(input.workload.resources)

of_gpus(name) if strings.any_prefix_match(name, {"nvidia.com/gpu", "nvidia.com/mig-", "volcano.sh/vgpu-", "koordinator.sh/gpu"})
