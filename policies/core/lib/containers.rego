# The containers and init containers of a pod, and those with GPUs.
package sluice.lib.containers

# entries are all containers, each with its list (containers or initContainers) and its
# spec.
entries := array.concat(in_list("containers", regular), in_list("initContainers", init))

default regular := []

# regular are the containers of the pod that are not init containers.
regular := input.object.spec.containers

default init := []

init := input.object.spec.initContainers

in_list(list, containers) := [{"list": list, "spec": spec} | some spec in containers]

# main_name is the name of the first container, which has the charge of the pod.
main_name := regular[0].name

# has_gpu: the container has a GPU, or will get it.
has_gpu(container) if container.name == input.workload.container

has_gpu(container) if count(gpu_resources(container)) > 0

# names_with_gpu_resources are the names of the containers that request a GPU by a
# resource.
names_with_gpu_resources := [container.spec.name | some container in entries; count(gpu_resources(container.spec)) > 0]

# gpu_resources returns the GPU resources that a container requests.
gpu_resources(container) := {name |
	some name, amount in container.resources.limits
	not amount in {0, "0"}
	name in object.keys(input.workload.resources)
}

# is_gpu_resource: a resource counts GPUs, shares of GPUs or GPU memory.
is_gpu_resource(name) if name in object.keys(input.workload.resources)

is_gpu_resource(name) if strings.any_prefix_match(name, {"nvidia.com/gpu", "nvidia.com/mig-", "volcano.sh/vgpu-", "koordinator.sh/gpu"})
