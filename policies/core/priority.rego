# Sets the priority class of a GPU pod by its workload type.
package core.priority

import data.sluice.lib.format
import data.sluice.lib.request

overrides.spec.priorityClassName := class if request.includes_gpu

class := "sluice-train" if input.workload.type == "train"

class := "sluice-inference" if input.workload.type == "inference"

class := "sluice-interactive" if {
	input.workload.type == "interactive"
	not request.preemptible
}

# Authors can choose this class to exceed the guarantee, and be preempted first.
class := "sluice-interactive-preemptible" if {
	input.workload.type == "interactive"
	request.preemptible
}

# The pod does not show whether another class is the author's choice or the
# cluster's default. By default such a class is replaced, with a warning; the
# parameters can name the cluster's default and deny all others.
deny contains {
	"msg": sprintf("priority class %s is not for GPU pods; a pod of type %s can have %s", [requested, input.workload.type, format.list(allowed_classes)]),
	"field": "spec.priorityClassName",
	"fix": "leave it out, or choose one of these",
} if {
	request.includes_gpu
	input.parameters.refuseOtherClasses
	requested := input.object.spec.priorityClassName
	not requested in {"", input.parameters.defaultClass, class}
	not strings.any_prefix_match(requested, {"sluice-", "system-"})
}

# allowed_classes are the classes that the author can choose.
allowed_classes := ["sluice-interactive", "sluice-interactive-preemptible"] if input.workload.type == "interactive"

else := [class]

deny contains {
	"msg": sprintf("priority class %s is not for a pod of type %s, which has %s", [requested, input.workload.type, class]),
	"field": "spec.priorityClassName",
	"fix": "leave it out, or set the label sluice.dev/workload-type to the intended type",
} if {
	request.includes_gpu
	requested := input.object.spec.priorityClassName
	strings.any_prefix_match(requested, {"sluice-", "system-"})
	requested != class
}

# Sluice does not set the priority of a pod without GPUs, but the pod must not have a
# higher priority than GPU pods.
deny contains {
	"msg": sprintf("priority class %s is not for a pod without GPUs", [requested]),
	"field": "spec.priorityClassName",
	"fix": "leave it out",
} if {
	not request.includes_gpu
	requested := input.object.spec.priorityClassName
	strings.any_prefix_match(requested, {"sluice-", "system-"})
}
