package schedulers.kube_scheduler_test

import data.fixtures
import data.schedulers.kube_scheduler as policy

test_names_the_scheduler if {
	policy.overrides.spec.schedulerName == "default-scheduler" with input as fixtures.asked(fixtures.gpus(1), [fixtures.whole])
	not policy.overrides.spec.schedulerName with input as fixtures.asked(fixtures.cpu, [fixtures.whole])
	not policy.overrides.spec.schedulerName with input as fixtures.asked(fixtures.gpus(1), [object.union(fixtures.whole, {"scheduler": "kueue"})])
}

rendered(kind, pools) := {quota.metadata.name: quota.spec |
	some quota in policy.objects with input as {"object": {"kind": kind}, "project": fixtures.project, "nodePools": pools}
}

test_two_quotas_for_each_pool if {
	pools := [fixtures.whole, object.union(fixtures.cut, {"guaranteed": 0.5}), object.union(fixtures.taken, {"scheduler": "kueue"})]
	{name: quota.hard | some name, quota in rendered("Project", pools)} == {
		"sluice-whole": {"requests.sluice.dev/gpu-milli.whole": "2000"},
		"sluice-whole.guaranteed": {"requests.sluice.dev/gpu-milli.whole": "1000"},
		"sluice-cut": {"requests.sluice.dev/gpu-milli.cut": "2000"},
		"sluice-cut.guaranteed": {"requests.sluice.dev/gpu-milli.cut": "500"},
	}
}

test_the_guarantee_is_for_what_cannot_be_preempted if {
	scopes := {name: quota.scopeSelector.matchExpressions[0].values | some name, quota in rendered("Project", [fixtures.whole])}
	scopes == {"sluice-whole.guaranteed": ["sluice-interactive", "sluice-inference"]}
}

test_nothing_for_departments_and_pools if {
	every kind in ["Department", "NodePool"] {
		count(rendered(kind, [fixtures.whole])) == 0
	}
}
