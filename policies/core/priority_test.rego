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

cpu_pod := fixtures.input_for(fixtures.cpu, [])

test_class_of_pods_without_gpus if {
	every type in ["train", "interactive", "inference"] {
		policy.overrides.spec.priorityClassName == "sluice-cpu" with input as cpu_pod with input.workload.type as type
	}
	count(policy.deny) == 0 with input as cpu_pod with input.object.spec.priorityClassName as "sluice-cpu"
}

test_pods_without_gpus_cannot_choose_a_class if {
	policy.overrides.spec.priorityClassName == "sluice-cpu" with input as cpu_pod with input.object.spec.priorityClassName as "high"
	every class in ["sluice-inference", "sluice-interactive-preemptible", "system-node-critical"] {
		{denial.msg | some denial in policy.deny} == {sprintf("priority class %s is not for a pod without GPUs, which has sluice-cpu", [class])} with input as cpu_pod
			with input.object.spec.priorityClassName as class
	}
}

test_other_classes_of_pods_without_gpus_are_denied_by_parameter if {
	refused := {denial.msg | some denial in policy.deny} with input as cpu_pod
		with input.object.spec.priorityClassName as "high"
		with input.parameters.refuseOtherClasses as true
	refused == {"priority class high is not for pods without GPUs; they can have sluice-cpu"}
	count(policy.deny) == 0 with input as cpu_pod
		with input.object.spec.priorityClassName as "cluster-default"
		with input.parameters.refuseOtherClasses as true
		with input.parameters.defaultClass as "cluster-default"
}

test_gpu_pods_do_not_keep_the_class_of_pods_without if {
	policy.overrides.spec.priorityClassName == "sluice-train" with input as pod_input("train") with input.object.spec.priorityClassName as "sluice-cpu"
	count(policy.deny) == 0 with input as pod_input("train") with input.object.spec.priorityClassName as "sluice-cpu"
}
