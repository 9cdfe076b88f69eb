package core.quota_test

import data.core.quota as policy
import data.fixtures

asked(type, count) := fixtures.asked(object.union(fixtures.gpus(count), {"type": type}), [fixtures.whole])

messages := {complaint.msg | some complaint in policy.deny}

test_what_fits if {
	count(policy.deny) == 0 with input as asked("train", 2)
	count(policy.deny) == 0 with input as asked("inference", 1)
}

test_over_the_limit if {
	messages == {"the pod counts as 3 GPUs of node pool whole; project thesis may have 2 GPUs there"} with input as asked("train", 3)
	count(messages) == 1 with input as asked("inference", 3)
}

test_over_the_guarantee if {
	some message in messages with input as asked("inference", 2)
	endswith(message, "stay within what is guaranteed to project thesis, 1 GPU")
}

test_who_may_be_ended_may_go_over_it if {
	count(policy.deny) == 1 with input as asked("interactive", 2)
	count(policy.deny) == 0 with input as asked("interactive", 2)
		with input.object.spec.priorityClassName as "sluice-interactive-preemptible"
}

test_nothing_at_all if {
	none := object.union(fixtures.whole, {"limit": 0, "guaranteed": 0})
	some message in messages with input as fixtures.asked(fixtures.gpus(1), [none])
	endswith(message, "may have no GPUs there")
}
