package minimum_grace_period_test

import data.minimum_grace_period

pod(seconds) := {"spec": {"terminationGracePeriodSeconds": seconds}}

gpu := {"type": "train", "form": "Whole"}

parameters := {"seconds": 120, "types": ["train"]}

test_default if {
	minimum_grace_period.defaults.spec.terminationGracePeriodSeconds == 120 with input.object as {"spec": {}}
		with input.workload as gpu
		with input.parameters as parameters
}

test_shorter_is_denied if {
	count(minimum_grace_period.deny) == 1 with input.object as pod(60) with input.workload as gpu with input.parameters as parameters
}

test_open_and_longer_are_not if {
	every seconds in [30, 120, 600] {
		count(minimum_grace_period.deny) == 0 with input.object as pod(seconds) with input.workload as gpu with input.parameters as parameters
	}
}

test_other_types if {
	not minimum_grace_period.defaults.spec.terminationGracePeriodSeconds with input.object as pod(5)
		with input.workload as object.union(gpu, {"type": "interactive"})
		with input.parameters as parameters
}
