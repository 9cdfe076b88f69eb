package schedulers.kube_scheduler_test

import data.fixtures
import data.schedulers.kube_scheduler as policy

test_names_the_scheduler if {
	policy.overrides.spec.schedulerName == "default-scheduler" with input as fixtures.asked(fixtures.gpus(1), [fixtures.whole])
	not policy.overrides.spec.schedulerName with input as fixtures.asked(fixtures.cpu, [fixtures.whole])
	not policy.overrides.spec.schedulerName with input as fixtures.asked(fixtures.gpus(1), [object.union(fixtures.whole, {"scheduler": "kueue"})])
}

test_two_quotas_for_each_pool if {
	hard := {quota.metadata.name: quota.spec.hard |
		some quota in policy.objects with input.project as fixtures.project
			with input.nodePools as [fixtures.whole, object.union(fixtures.cut, {"guaranteed": 0.5})]
	}
	hard == {
		"sluice-whole": {"requests.sluice.dev/gpu-milli.whole": "2000"},
		"sluice-whole.guaranteed": {"requests.sluice.dev/gpu-milli.whole": "1000"},
		"sluice-cut": {"requests.sluice.dev/gpu-milli.cut": "2000"},
		"sluice-cut.guaranteed": {"requests.sluice.dev/gpu-milli.cut": "500"},
	}
}

test_the_guarantee_is_for_what_cannot_be_preempted if {
	scopes := {quota.metadata.name: quota.spec.scopeSelector.matchExpressions[0].values |
		some quota in policy.objects with input.project as fixtures.project with input.nodePools as [fixtures.whole]
	}
	scopes == {"sluice-whole.guaranteed": ["sluice-interactive", "sluice-inference"]}
}
