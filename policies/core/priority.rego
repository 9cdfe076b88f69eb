# Sets the priority class of a pod: that of its workload type, or that of pods without
# GPUs.
package core.priority

import data.sluice.lib.format
import data.sluice.lib.request

overrides.spec.priorityClassName := class

# A pod without GPUs preempts none, and yields its CPUs and its memory to pods with GPUs.
class := "sluice-cpu" if not request.includes_gpu

class := "sluice-train" if {
	request.includes_gpu
	input.workload.type == "train"
}

class := "sluice-inference" if {
	request.includes_gpu
	input.workload.type == "inference"
}

class := "sluice-interactive" if {
	request.includes_gpu
	input.workload.type == "interactive"
	not request.preemptible
}

# Authors can choose this class to exceed the guarantee, and be preempted first.
class := "sluice-interactive-preemptible" if {
	request.includes_gpu
	input.workload.type == "interactive"
	request.preemptible
}

# The pod does not show whether another class is the author's choice or the
# cluster's default. By default such a class is replaced, with a warning; the
# parameters can name the cluster's default and deny all others.
deny contains {
	"msg": sprintf("priority class %s is not for %s can have %s", [requested, subject, format.list(allowed_classes)]),
	"field": "spec.priorityClassName",
	"fix": "leave it out, or choose one of these",
} if {
	input.parameters.refuseOtherClasses
	not requested in {"", input.parameters.defaultClass, class}
	not strings.any_prefix_match(requested, {"sluice-", "system-"})
	subject := {
		true: sprintf("GPU pods; a pod of type %s", [input.workload.type]),
		false: "pods without GPUs; they",
	}[is_gpu_pod]
}

requested := input.object.spec.priorityClassName

# allowed_classes are the classes that the author can choose.
allowed_classes := ["sluice-interactive", "sluice-interactive-preemptible"] if {
	request.includes_gpu
	input.workload.type == "interactive"
}

else := [class]

deny contains {
	"msg": sprintf("priority class %s is not for a pod %s, which has %s", [requested, kind, class]),
	"field": "spec.priorityClassName",
	"fix": fix,
} if {
	strings.any_prefix_match(requested, {"sluice-", "system-"})
	not requested in {class, "sluice-cpu"} # that is replaced: no class is lower
	kind := {true: sprintf("of type %s", [input.workload.type]), false: "without GPUs"}[is_gpu_pod]
	fix := {
		true: "leave it out, or set the label sluice.dev/workload-type to the intended type",
		false: "leave it out",
	}[is_gpu_pod]
}

default is_gpu_pod := false

is_gpu_pod if request.includes_gpu
