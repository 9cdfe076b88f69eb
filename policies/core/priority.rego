# Sets the priority class of a GPU pod by its workload type.
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

# Authors can choose this class to exceed the guarantee, and be preempted first.
class := "sluice-interactive-preemptible" if {
	input.workload.type == "interactive"
	ask.preemptible
}

# The pod does not show whether another class is the author's choice or the
# cluster's default. By default such a class is replaced, with a warning; the
# parameters can name the cluster's default and deny all others.
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

# Sluice does not set the priority of a pod without GPUs, but the pod must not have a
# higher priority than GPU pods.
deny contains {
	"msg": sprintf("priority class %s is not for a pod without GPUs", [chosen]),
	"field": "spec.priorityClassName",
	"fix": "leave it out",
} if {
	not ask.gpu
	chosen := input.object.spec.priorityClassName
	strings.any_prefix_match(chosen, {"sluice-", "system-"})
}
