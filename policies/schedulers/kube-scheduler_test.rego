package schedulers.kube_scheduler_test

import data.fixtures
import data.schedulers.kube_scheduler as policy

test_scheduler_name if {
	policy.overrides.spec.schedulerName == "default-scheduler" with input as fixtures.input_for(fixtures.gpus(1), [fixtures.whole])
	not policy.overrides.spec.schedulerName with input as fixtures.input_for(fixtures.cpu, [fixtures.whole])
	not policy.overrides.spec.schedulerName with input as fixtures.input_for(fixtures.gpus(1), [object.union(fixtures.whole, {"scheduler": "kueue"})])
}

rendered(kind, pools) := {quota.metadata.name: quota.spec |
	some quota in policy.objects with input as {"object": {"kind": kind}, "project": fixtures.project, "nodePools": pools}
}

test_two_quotas_per_pool if {
	pools := [fixtures.whole, object.union(fixtures.mig, {"guaranteed": 0.5}), object.union(fixtures.time_sliced, {"scheduler": "kueue"})]
	{name: quota.hard | some name, quota in rendered("Project", pools)} == {
		"sluice-whole": {"requests.sluice.dev/gpu-milli.whole": "2000"},
		"sluice-whole.guaranteed": {"requests.sluice.dev/gpu-milli.whole": "1000"},
		"sluice-mig": {"requests.sluice.dev/gpu-milli.mig": "2000"},
		"sluice-mig.guaranteed": {"requests.sluice.dev/gpu-milli.mig": "500"},
	}
}

test_guarantee_selects_non_preemptible_pods if {
	scopes := {name: quota.scopeSelector.matchExpressions[0].values | some name, quota in rendered("Project", [fixtures.whole])}
	scopes == {"sluice-whole.guaranteed": ["sluice-interactive", "sluice-inference"]}
}

test_no_objects_for_departments_and_pools if {
	every kind in ["Department", "NodePool"] {
		count(rendered(kind, [fixtures.whole])) == 0
	}
}
