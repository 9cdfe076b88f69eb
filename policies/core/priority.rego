# The priority of a GPU pod, which follows from its type.
package core.priority

import data.sluice.lib.ask
import data.sluice.lib.words

overrides.spec.priorityClassName := class if ask.gpu

class := "sluice-train" if input.workload.type == "train"

class := "sluice-inference" if input.workload.type == "inference"

class := "sluice-interactive" if {
	input.workload.type == "interactive"
	not ask.preemptible
}

# The one choice that authors have: to go over what is guaranteed, and be ended
# first.
class := "sluice-interactive-preemptible" if {
	input.workload.type == "interactive"
	ask.preemptible
}

# Of other classes nobody can tell by the pod whether its author chose them or the
# API server filled in the cluster's default. Unless the parameters tell which that
# is, they are replaced, and a choice is warned of.
deny contains {
	"msg": sprintf("priority class %s is not for GPU pods; one of type %s has %s", [chosen, input.workload.type, words.list(offered)]),
	"field": "spec.priorityClassName",
	"fix": "leave it out, or choose one of these",
} if {
	ask.gpu
	input.parameters.refuseOtherClasses
	chosen := input.object.spec.priorityClassName
	not chosen in {"", input.parameters.defaultClass, class}
	not strings.any_prefix_match(chosen, {"sluice-", "system-"})
}

offered := ["sluice-interactive", "sluice-interactive-preemptible"] if input.workload.type == "interactive"

else := [class]

deny contains {
	"msg": sprintf("priority class %s is not for a pod of type %s, which has %s", [chosen, input.workload.type, class]),
	"field": "spec.priorityClassName",
	"fix": "leave it out, or set the label sluice.dev/workload-type to the intended type",
} if {
	ask.gpu
	chosen := input.object.spec.priorityClassName
	strings.any_prefix_match(chosen, {"sluice-", "system-"})
	chosen != class
}

# A pod without GPUs is not Sluice's to rank, but must not outrank those that are.
deny contains {
	"msg": sprintf("priority class %s is not for a pod without GPUs", [chosen]),
	"field": "spec.priorityClassName",
	"fix": "leave it out",
} if {
	not ask.gpu
	chosen := input.object.spec.priorityClassName
	strings.any_prefix_match(chosen, {"sluice-", "system-"})
}
