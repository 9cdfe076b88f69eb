package core.priority_test

import data.core.priority as policy
import data.fixtures

pod_input(type) := fixtures.input_for(object.union(fixtures.gpus(1), {"type": type}), [fixtures.whole])

test_class_of_type if {
	every type in ["train", "interactive", "inference"] {
		policy.overrides.spec.priorityClassName == sprintf("sluice-%s", [type]) with input as pod_input(type)
	}
}

test_preemptible_class_can_be_chosen if {
	class := "sluice-interactive-preemptible"
	policy.overrides.spec.priorityClassName == class with input as pod_input("interactive")
		with input.object.spec.priorityClassName as class
	count(policy.deny) == 0 with input as pod_input("interactive") with input.object.spec.priorityClassName as class
	count(policy.deny) == 1 with input as pod_input("inference") with input.object.spec.priorityClassName as class
}

test_classes_of_other_types_are_denied if {
	count(policy.deny) == 1 with input as pod_input("train") with input.object.spec.priorityClassName as "sluice-inference"
	count(policy.deny) == 1 with input as pod_input("train") with input.object.spec.priorityClassName as "system-node-critical"
	count(policy.deny) == 0 with input as pod_input("train") with input.object.spec.priorityClassName as "high"
}

messages(type, class) := texts if {
	texts := {denial.msg | some denial in policy.deny} with input as pod_input(type)
		with input.object.spec.priorityClassName as class
		with input.parameters.refuseOtherClasses as true
		with input.parameters.defaultClass as "cluster-default"
}

test_other_classes_are_denied_by_parameter if {
	messages("interactive", "high") == {"priority class high is not for GPU pods; a pod of type interactive can have sluice-interactive and sluice-interactive-preemptible"}
	count(messages("train", "high")) == 1
	count(messages("train", "sluice-inference")) == 1
	count(messages("train", "cluster-default")) == 0
	count(messages("train", "sluice-train")) == 0
}

test_other_pods_keep_class if {
	not policy.overrides.spec.priorityClassName with input as fixtures.input_for(fixtures.cpu, [])
	count(policy.deny) == 0 with input as fixtures.input_for(fixtures.cpu, []) with input.object.spec.priorityClassName as "high"
}

test_other_pods_cannot_have_gpu_classes if {
	every class in ["sluice-inference", "system-node-critical"] {
		count(policy.deny) == 1 with input as fixtures.input_for(fixtures.cpu, []) with input.object.spec.priorityClassName as class
	}
}
