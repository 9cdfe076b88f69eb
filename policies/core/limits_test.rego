package core.limits_test

import data.core.limits as policy
import data.fixtures

asked(type, runtime, seconds) := fixtures.asked(
	object.union(fixtures.gpus(1), {"type": type, "maxRuntime": runtime, "maxRuntimeSeconds": seconds}),
	[fixtures.whole],
)

limit := policy.overrides.metadata.annotations["sluice.dev/time-limit"]

test_the_projects if limit == "48h" with input as asked("train", "", 0)

test_the_shorter if {
	limit == "6h" with input as asked("train", "6h", 21600)
	limit == "8h" with input as asked("interactive", "9h", 32400)
	count(policy.warn) == 1 with input as asked("interactive", "9h", 32400)
	limit == "900h" with input as asked("inference", "900h", 3240000)
}

test_none if {
	asked_none := asked("inference", "", 0)
	not limit with input as asked_none
	policy.remove == {["metadata", "annotations", "sluice.dev/time-limit"]} with input as asked_none
}

test_time_to_end if {
	asked_short := asked("train", "", 0)
	grace := 5
	policy.overrides.spec.terminationGracePeriodSeconds == 30 with input as asked_short
		with input.object.spec.terminationGracePeriodSeconds as grace
	policy.overrides.spec.terminationGracePeriodSeconds == 60 with input as asked_short
		with input.object.spec.terminationGracePeriodSeconds as grace
		with input.parameters.minimumGraceSeconds as 60
	not policy.overrides.spec.terminationGracePeriodSeconds with input as asked_short with input.object.spec.terminationGracePeriodSeconds as 90
}

test_no_time_without_end if {
	asked_long := asked("train", "", 0)
	policy.overrides.spec.terminationGracePeriodSeconds == 3600 with input as asked_long
		with input.object.spec.terminationGracePeriodSeconds as 86400000
	policy.overrides.spec.terminationGracePeriodSeconds == 600 with input as asked_long
		with input.object.spec.terminationGracePeriodSeconds as 3600
		with input.parameters.maximumGraceSeconds as 600
	policy.overrides.spec.terminationGracePeriodSeconds == 30 with input as asked_long
		with input.object.spec.terminationGracePeriodSeconds as 31
		with input.parameters.maximumGraceSeconds as 1
	not policy.overrides.spec.terminationGracePeriodSeconds with input as asked_long with input.object.spec.terminationGracePeriodSeconds as 3600
	cpu := fixtures.asked(fixtures.cpu, [fixtures.whole])
	not policy.overrides.spec.terminationGracePeriodSeconds with input as cpu with input.object.spec.terminationGracePeriodSeconds as 86400
}
