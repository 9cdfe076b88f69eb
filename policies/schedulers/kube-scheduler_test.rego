package schedulers.kube_scheduler_test

import data.fixtures
import data.schedulers.kube_scheduler as policy

test_scheduler_name if {
	policy.overrides.spec.schedulerName == "default-scheduler" with input as fixtures.input_for(fixtures.gpus(1), [fixtures.whole])
	not policy.overrides.spec.schedulerName with input as fixtures.input_for(fixtures.cpu, [fixtures.whole])
	not policy.overrides.spec.schedulerName with input as fixtures.input_for(fixtures.gpus(1), [object.union(fixtures.whole, {"scheduler": "kueue"})])
}

rendered(kind, pools) := {quota.spec.hard |
	some quota in policy.objects with input as {"object": {"kind": kind}, "project": fixtures.project, "nodePools": pools}
}

test_limits_of_each_pool if {
	pools := [fixtures.whole, object.union(fixtures.mig, {"guaranteed": 0.5}), object.union(fixtures.time_sliced, {"scheduler": "kueue"})]
	rendered("Project", pools) == {
		{"requests.sluice.dev/gpu-milli.whole": "2000", "requests.sluice.dev/guaranteed-milli.whole": "1000"},
		{"requests.sluice.dev/gpu-milli.mig": "2000", "requests.sluice.dev/guaranteed-milli.mig": "500"},
	}
}

test_no_objects_for_departments_and_pools if {
	every kind in ["Department", "NodePool"] {
		count(rendered(kind, [fixtures.whole])) == 0
	}
}
