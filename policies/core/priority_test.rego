package core.priority_test

import data.core.priority as policy
import data.fixtures

asked(type) := fixtures.asked(object.union(fixtures.gpus(1), {"type": type}), [fixtures.whole])

test_the_class_follows_from_the_type if {
	every type in ["train", "interactive", "inference"] {
		policy.overrides.spec.priorityClassName == sprintf("sluice-%s", [type]) with input as asked(type)
	}
}

test_the_one_choice if {
	class := "sluice-interactive-preemptible"
	policy.overrides.spec.priorityClassName == class with input as asked("interactive")
		with input.object.spec.priorityClassName as class
	count(policy.deny) == 0 with input as asked("interactive") with input.object.spec.priorityClassName as class
	count(policy.deny) == 1 with input as asked("inference") with input.object.spec.priorityClassName as class
}

test_classes_that_mean_something_else_are_refused if {
	count(policy.deny) == 1 with input as asked("train") with input.object.spec.priorityClassName as "sluice-inference"
	count(policy.deny) == 1 with input as asked("train") with input.object.spec.priorityClassName as "system-node-critical"
	count(policy.deny) == 0 with input as asked("train") with input.object.spec.priorityClassName as "high"
}

chosen(type, name) := said if {
	said := {complaint.msg | some complaint in policy.deny} with input as asked(type)
		with input.object.spec.priorityClassName as name
		with input.parameters.refuseOtherClasses as true
		with input.parameters.defaultClass as "usual"
}

test_others_are_refused_where_the_clusters_default_is_known if {
	chosen("interactive", "high") == {"priority class high is not for GPU pods; one of type interactive has sluice-interactive and sluice-interactive-preemptible"}
	count(chosen("train", "high")) == 1
	count(chosen("train", "sluice-inference")) == 1
	count(chosen("train", "usual")) == 0
	count(chosen("train", "sluice-train")) == 0
}

test_other_pods_keep_theirs if {
	not policy.overrides.spec.priorityClassName with input as fixtures.asked(fixtures.cpu, [])
	count(policy.deny) == 0 with input as fixtures.asked(fixtures.cpu, []) with input.object.spec.priorityClassName as "high"
}

test_other_pods_outrank_none_of_ours if {
	every class in ["sluice-inference", "system-node-critical"] {
		count(policy.deny) == 1 with input as fixtures.asked(fixtures.cpu, []) with input.object.spec.priorityClassName as class
	}
}
